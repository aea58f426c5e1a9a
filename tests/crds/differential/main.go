// Reads CDI spec files with the CDI library itself: one JSON object a line in, one out.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Files of one folder, by name.
type question struct {
	Files map[string][]byte
}

type answer struct {
	// Every device that can be injected.
	Devices []string
	// What the library says of each file that it refuses.
	Errors map[string][]string
	// What it reads in each file that it takes (specs-go/config.go).
	Specs map[string]any
	// Why it crashed, if it did.
	Panic string
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		check(json.Unmarshal(line, &asked))
		said, err := json.Marshal(reply(asked))
		check(err)
		out.Write(append(said, '\n'))
		check(out.Flush())
	}
}

func reply(asked question) (said answer) {
	said = answer{Devices: []string{}, Errors: map[string][]string{}, Specs: map[string]any{}}
	folder, err := os.MkdirTemp(os.Args[1], "specs")
	check(err)
	defer os.RemoveAll(folder)
	for name, data := range asked.Files {
		check(os.WriteFile(filepath.Join(folder, name), data, 0o644))
	}
	defer func() {
		if cause := recover(); cause != nil {
			said.Panic = fmt.Sprint(cause)
		}
	}()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(folder), cdi.WithAutoRefresh(false))
	check(err)
	said.Devices = append(said.Devices, cache.ListDevices()...)
	sort.Strings(said.Devices)
	for path, found := range cache.GetErrors() {
		for _, fault := range found {
			said.Errors[filepath.Base(path)] = append(said.Errors[filepath.Base(path)], fault.Error())
		}
	}
	for name := range asked.Files {
		spec, err := cdi.ReadSpec(filepath.Join(folder, name), 0)
		if err == nil && spec != nil {
			said.Specs[name] = spec.Spec
		}
	}
	return said
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
