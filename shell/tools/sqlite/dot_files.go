package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

const maxReads = 25

func (s *shell) read(name string) error {
	if s.depth >= maxReads {
		return errors.New("Error: .read is nested too deeply")
	}
	in, err := s.OpenIn(name)
	if err != nil {
		return fmt.Errorf("Error: cannot open \"%s\"", name)
	}
	s.depth++
	before := s.failed
	s.script(in)
	s.depth--
	_ = in.Close() // it was read
	if s.failed > before && s.bail {
		return errSaid
	}
	return nil
}

func (s *shell) output(a []string) error { return s.setOutput(a, false) }

func (s *shell) outputOnce(a []string) error { return s.setOutput(a, true) }

// setOutput sends results to a file, or without a name to standard output.
func (s *shell) setOutput(a []string, once bool) error {
	s.closeOutput()
	for len(a) > 0 && strings.HasPrefix(a[0], "-") {
		return errors.New("Error: there is no program to open a result with")
	}
	if len(a) == 0 || a[0] == "stdout" {
		return nil
	}
	if strings.HasPrefix(a[0], "|") {
		return errors.New("Error: output to a command is not available here")
	}
	if a[0] == "off" {
		s.w = bufio.NewWriter(io.Discard)
		return nil
	}
	f, err := s.Open(a[0], vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err != nil {
		return fmt.Errorf("Error: cannot write to \"%s\"", a[0])
	}
	s.w, s.file, s.once = bufio.NewWriter(f), f, once
	return nil
}

func (s *shell) closeOutput() {
	if s.w != s.std {
		if err := s.w.Flush(); err != nil && !s.Stopped(err) {
			s.complain("Error: %s", tool.ErrText(err))
		}
	}
	if s.file != nil {
		_ = s.file.Close() // it was flushed
	}
	s.w, s.file, s.once = s.std, nil, false
}

func (s *shell) afterOnce() {
	if s.once {
		s.closeOutput()
	}
}

func (s *shell) backup(a []string) error {
	from := "main"
	var names []string
	for _, x := range a {
		if !strings.HasPrefix(x, "-") {
			names = append(names, x)
		}
	}
	switch len(names) {
	case 1:
	case 2:
		from = names[0]
	default:
		return errUsage(".backup ?DB? FILE")
	}
	dst, err := s.d.open(names[len(names)-1], false)
	if err != nil {
		return fmt.Errorf("Error: cannot open \"%s\"", names[len(names)-1])
	}
	defer dst.close()
	return s.db.copyTo(dst, from, "main")
}

func (s *shell) restore(a []string) error {
	to := "main"
	if len(a) == 2 {
		to = a[0]
	}
	if len(a) < 1 || len(a) > 2 {
		return errUsage(".restore ?DB? FILE")
	}
	src, err := s.d.open(a[len(a)-1], true)
	if err != nil {
		return fmt.Errorf("Error: cannot open \"%s\"", a[len(a)-1])
	}
	defer src.close()
	return src.copyTo(s.db, "main", to)
}
