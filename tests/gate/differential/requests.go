package main

// How a Docker daemon reads a request's head, frames and target: Go's net/http, and the way through gorilla/mux to its
// routes (github.com/moby/moby api/server/server.go createMux, api/server/router/*).

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
)

type request struct {
	Method  string
	Target  string
	Headers http.Header
	Body    []byte
	// What lies behind the request: the beginning of a second one.
	Rest []byte
}

func readRequest(data []byte) (*request, error) {
	reader := bufio.NewReaderSize(bytes.NewReader(data), 4096)
	read, err := http.ReadRequest(reader)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(read.Body)
	if err != nil {
		return nil, err
	}
	rest, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	if read.Header == nil {
		read.Header = http.Header{}
	}
	return &request{read.Method, read.RequestURI, read.Header, body, rest}, nil
}

type routed struct {
	// ok, moved (a redirect to the clean path), none or malformed.
	Outcome string
	Pattern string
	Version string
	Names   []string
	Query   map[string][]string
	// The query as a whole did not parse; a handler answers 400.
	BadQuery bool
}

type route struct {
	method, pattern string
	matcher         *regexp.Regexp
}

// In the order in which the daemon registers them; each with and without a version.
var routes = func() []route {
	var found []route
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		method, pattern, _ := strings.Cut(strings.TrimSpace(line), " ")
		expression := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\{n\}`, "(.*)")
		for _, prefix := range []string{"/v([0-9.]+)", "()"} {
			found = append(found, route{method, pattern, regexp.MustCompile("^" + prefix + expression + "$")})
		}
	}
	return found
}()

// {n} is mux's {name:.*}: it spans slashes.
const table = `
HEAD /containers/{n}/archive
GET /containers/json
GET /containers/{n}/export
GET /containers/{n}/changes
GET /containers/{n}/json
GET /containers/{n}/top
GET /containers/{n}/logs
GET /containers/{n}/stats
GET /containers/{n}/attach/ws
GET /exec/{n}/json
GET /containers/{n}/archive
POST /containers/create
POST /containers/{n}/kill
POST /containers/{n}/pause
POST /containers/{n}/unpause
POST /containers/{n}/restart
POST /containers/{n}/start
POST /containers/{n}/stop
POST /containers/{n}/wait
POST /containers/{n}/resize
POST /containers/{n}/attach
POST /containers/{n}/exec
POST /exec/{n}/start
POST /exec/{n}/resize
POST /containers/{n}/rename
POST /containers/{n}/update
POST /containers/prune
POST /commit
PUT /containers/{n}/archive
DELETE /containers/{n}
GET /images/json
GET /images/search
GET /images/get
GET /images/{n}/get
GET /images/{n}/history
GET /images/{n}/json
GET /images/{n}/attestations
POST /images/load
POST /images/create
POST /images/{n}/push
POST /images/{n}/tag
POST /images/prune
DELETE /images/{n}
OPTIONS /{n}
GET /_ping
HEAD /_ping
GET /events
GET /info
GET /version
GET /system/df
POST /auth
GET /volumes
GET /volumes/{n}
POST /volumes/create
POST /volumes/prune
PUT /volumes/{n}
DELETE /volumes/{n}
POST /build
POST /build/prune
POST /build/cancel
POST /session
GET /distribution/{n}/json
GET /networks
GET /networks/{n}
POST /networks/create
POST /networks/{n}/connect
POST /networks/{n}/disconnect
POST /networks/prune
DELETE /networks/{n}
POST /grpc
GET /plugins
GET /plugins/{n}/json
GET /services
GET /services/{n}
GET /tasks
GET /tasks/{n}
GET /nodes
GET /nodes/{n}
`

func readTarget(method, target string) routed {
	head := method + " " + target + " HTTP/1.1\r\nHost: docker\r\n\r\n"
	read, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		return routed{Outcome: "malformed"}
	}
	if cleanPath(read.URL.Path) != read.URL.Path {
		return routed{Outcome: "moved"}
	}
	for _, row := range routes {
		names := row.matcher.FindStringSubmatch(read.URL.Path)
		if names == nil || row.method != read.Method {
			continue
		}
		err := read.ParseForm()
		bad := err != nil && !strings.HasPrefix(err.Error(), "mime:")
		return routed{"ok", row.pattern, names[1], names[2:], read.Form, bad}
	}
	return routed{Outcome: "none"}
}

// cleanPath is gorilla/mux's.
func cleanPath(given string) string {
	if given == "" {
		return "/"
	}
	if given[0] != '/' {
		given = "/" + given
	}
	cleaned := path.Clean(given)
	if given[len(given)-1] == '/' && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned
}
