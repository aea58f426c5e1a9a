// Prints operator/gpugrant_operator/apiserver/objects/protobuf_fields.py, from the Go types' own tags: which zero is
// left out stands there alone, and not in generated.proto. In this folder:
//
//	go run -mod=mod . >../../../operator/gpugrant_operator/apiserver/objects/protobuf_fields.py
package main

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var roots = []struct {
	key  string
	kind any
}{
	{"v1/ConfigMap", core.ConfigMap{}}, {"v1/Event", core.Event{}}, {"v1/Namespace", core.Namespace{}}, {"v1/Secret", core.Secret{}},
	{"authentication.k8s.io/v1/SelfSubjectReview", authentication.SelfSubjectReview{}},
	{"authorization.k8s.io/v1/SelfSubjectAccessReview", authorization.SelfSubjectAccessReview{}},
	{"authorization.k8s.io/v1/SelfSubjectRulesReview", authorization.SelfSubjectRulesReview{}},
	{"coordination.k8s.io/v1/Lease", coordination.Lease{}},
	{"events.k8s.io/v1/Event", events.Event{}},
	{"DeleteOptions", meta.DeleteOptions{}},
}

const header = `"""The protobuf fields of the kinds that the server takes in that form.

Made by hack/lib/protobuf_fields from the Go types of k8s.io/api v0.34.2 and k8s.io/apimachinery v0.34.2 (Apache-2.0);
never edited by hand. Numbers of fields never change, and one that is not here is passed over.
"""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """The type is a scalar, a message, or "[]" or "{}" before what a list or a map of strings holds."""

    number: int
    name: str
    type: str
    keeps_zero: bool = False
    """True: Go tells an unset field from a zero one, or writes the zero into JSON."""

`

var special = map[reflect.Type]string{
	reflect.TypeOf(meta.Time{}): "time", reflect.TypeOf(meta.MicroTime{}): "microtime", reflect.TypeOf(meta.FieldsV1{}): "json",
}
var seen = map[string]reflect.Type{}

func name(t reflect.Type) string {
	p := strings.Split(t.PkgPath(), "/")
	return p[len(p)-2] + "." + t.Name()
}

func kind(t reflect.Type) string {
	if s, ok := special[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Ptr:
		return kind(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64:
		return "int64"
	case reflect.Struct:
		seen[name(t)] = t
		return name(t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if t.Name() != "" {
			return "items" // a message around a list, as ExtraValue
		}
		return "[]" + kind(t.Elem())
	case reflect.Map:
		return "{}" + kind(t.Elem())
	}
	panic(t.String())
}

func rows(t reflect.Type) (out []string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue // TypeMeta: it goes beside the object
		}
		json := strings.Split(f.Tag.Get("json"), ",")
		keep := f.Type.Kind() == reflect.Ptr || !strings.Contains(f.Tag.Get("json"), ",omitempty")
		if f.Type.Kind() == reflect.Struct {
			keep = false
		}
		flag := ""
		if keep {
			flag = ", keeps_zero=True"
		}
		out = append(out, fmt.Sprintf("Field(%s, %q, %q%s),", tag[1], json[0], kind(f.Type), flag))
	}
	return
}

func main() {
	fmt.Println(header)
	fmt.Println("ROOTS: dict[str, str] = {")
	for _, r := range roots {
		fmt.Printf("    %q: %q,\n", r.key, kind(reflect.TypeOf(r.kind)))
	}
	fmt.Println("}\n\"\"\"`apiVersion/kind`, or the kind alone where any version has it, to its message.\"\"\"")
	fmt.Println("\nMESSAGES: dict[str, tuple[Field, ...]] = {")
	lines := map[string][]string{}
	for len(lines) < len(seen) {
		for n, t := range seen {
			if _, ok := lines[n]; !ok {
				lines[n] = rows(t)
				break
			}
		}
	}
	names := make([]string, 0, len(lines))
	for n := range lines {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		fmt.Printf("    %q: (\n", n)
		for _, l := range lines[n] {
			fmt.Println("        " + l)
		}
		fmt.Println("    ),")
	}
	fmt.Println("}")
}
