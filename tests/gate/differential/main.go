// Reads what it is given as a Docker daemon would and says what it read: one JSON object a line in, one out.
package main

import (
	"bufio"
	"encoding/json"
	"os"
)

type question struct {
	// A route's id: Data is its body. "request": Data is a request's bytes. "target": Method and Target.
	Kind   string
	Data   []byte
	Method string
	Target string
}

type answer struct {
	Value any
	Error string
}

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		said, err := json.Marshal(reply(asked))
		if err != nil {
			panic(err)
		}
		out.Write(said)
		out.WriteByte('\n')
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}

func reply(asked question) answer {
	var value any
	var err error
	switch asked.Kind {
	case "request":
		value, err = readRequest(asked.Data)
	case "target":
		value = readTarget(asked.Method, asked.Target)
	default:
		value, err = readBody(asked.Kind, asked.Data)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Value: value}
}
