package kernel

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
)

// javaFlags make a small and quick start of Java. More can be given by JDK_JAVA_OPTIONS.
var javaFlags = []string{"-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto",
	"--add-modules", "jdk.jshell"}

// java starts our runner for Java, unless the image has a Jupyter kernel for it: somebody installed
// that on purpose.
func (f Finder) java(ctx context.Context, o Options, dir string) (Kernel, error) {
	if spec, err := f.spec(o.Language); err == nil {
		return f.notebook(ctx, o, dir, spec)
	}
	exe, err := f.program(Java, "java")
	if err != nil {
		return nil, err
	}
	script, err := write(dir, "Cells.java")
	if err != nil {
		return nil, err
	}
	cmd := f.command(o, exe, append(slices.Clone(javaFlags), script)...)
	r, err := startRunner(cmd, dir, false)
	if err != nil {
		return nil, err
	}
	r.encode = encodeWords
	if _, err := r.hello(ctx, o.Language); err != nil {
		return nil, err
	}
	return r, nil
}

// encodeWords is the request of a runner that has no parser of JSON: words on one line, all but the
// first in base64. They are the number of the cell, its code, the number of the sandbox's variables,
// and the names and values of these and of the cell's own.
func encodeWords(r request) ([]byte, error) {
	raw := strconv.AppendInt(nil, int64(r.ID), 10)
	add := func(word string) {
		raw = append(raw, ' ')
		raw = base64.StdEncoding.AppendEncode(raw, []byte(word))
	}
	add(r.Code)
	add(strconv.Itoa(len(r.Base)))
	for _, vars := range []map[string]string{r.Base, r.Env} {
		for _, name := range slices.Sorted(maps.Keys(vars)) {
			add(name)
			add(vars[name])
		}
	}
	return append(raw, '\n'), nil
}
