package git

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	format "github.com/go-git/go-git/v5/plumbing/format/config"
)

// setting is one line of the configuration.
type setting struct {
	key, value string
	from       string // the file
}

// settings is the configuration: the system's, the user's, the repository's and the command line's.
// The last setting of a key counts.
type settings struct{ all []setting }

func (g *git) globalFile() string { return path.Join(g.home(), ".gitconfig") }

func (g *git) home() string {
	if h := g.Getenv("HOME"); h != "" {
		return h
	}
	return "/"
}

// config reads the configuration.
func (g *git) config(r *repo) *settings {
	s := &settings{}
	s.load(g, "/etc/gitconfig")
	xdg := g.Getenv("XDG_CONFIG_HOME")
	if xdg == "" {
		xdg = path.Join(g.home(), ".config")
	}
	s.load(g, path.Join(xdg, "git/config"))
	s.load(g, g.globalFile())
	if r != nil {
		s.load(g, path.Join(r.git_, "config"))
	}
	for _, kv := range g.settings {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			v = "true"
		}
		s.all = append(s.all, setting{canonical(k), v, "command line:"})
	}
	return s
}

func (s *settings) load(g *git, file string) {
	c, err := g.readConfig(file)
	if err != nil {
		return
	}
	for _, sec := range c.Sections {
		for _, o := range sec.Options {
			s.all = append(s.all, setting{strings.ToLower(sec.Name) + "." + strings.ToLower(o.Key), o.Value, file})
		}
		for _, sub := range sec.Subsections {
			for _, o := range sub.Options {
				s.all = append(s.all, setting{strings.ToLower(sec.Name) + "." + sub.Name + "." + strings.ToLower(o.Key), o.Value, file})
			}
		}
	}
}

// readConfig reads one file. A missing file is empty.
func (g *git) readConfig(file string) (*format.Config, error) {
	c := format.New()
	b, err := g.FS().ReadFile(file)
	if err != nil {
		return c, nil
	}
	if len(b) > 1<<20 || !g.Step(1+len(b)>>4) {
		return nil, fatalf("bad config file %s", file)
	}
	if err := format.NewDecoder(bytes.NewReader(b)).Decode(c); err != nil {
		return nil, fatalf("bad config line in file %s", file)
	}
	return c, nil
}

func (g *git) writeConfig(file string, c *format.Config) error {
	var b bytes.Buffer
	if err := format.NewEncoder(&b).Encode(c); err != nil {
		return err
	}
	if err := g.FS().MkdirAll(path.Dir(file), 0o777&^g.Umask()); err != nil {
		return err
	}
	return g.FS().WriteFile(file, b.Bytes(), 0o666&^g.Umask())
}

// canonical converts the case-insensitive parts of a key to lower case.
func canonical(key string) string {
	i, j := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	if i < 0 {
		return strings.ToLower(key)
	}
	return strings.ToLower(key[:i]) + key[i:j] + strings.ToLower(key[j:])
}

func (s *settings) get(key string) string {
	v, _ := s.lookup(key)
	return v
}

func (s *settings) lookup(key string) (string, bool) {
	key = canonical(key)
	for _, x := range slices.Backward(s.all) {
		if x.key == key {
			return x.value, true
		}
	}
	return "", false
}

func (s *settings) values(key string) (out []setting) {
	key = canonical(key)
	for _, x := range s.all {
		if x.key == key {
			out = append(out, x)
		}
	}
	return out
}

// splitKey splits a key into section, subsection and name.
func splitKey(key string) (section, sub, name string, err error) {
	i, j := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	switch {
	case i < 0:
		return "", "", "", fmt.Errorf("error: key does not contain a section: %s", key)
	case j == len(key)-1:
		return "", "", "", fmt.Errorf("error: key does not contain variable name: %s", key)
	}
	if i < j {
		sub = key[i+1 : j]
	}
	for k, c := range []byte(key[j+1:]) {
		if c|0x20 < 'a' || c|0x20 > 'z' {
			if k == 0 || c != '-' && (c < '0' || c > '9') {
				return "", "", "", fmt.Errorf("error: invalid key: %s", key)
			}
		}
	}
	return key[:i], sub, key[j+1:], nil
}

// set changes one key of a file. With add it adds another value to the key.
func (g *git) set(file, key, value string, add bool) error {
	section, sub, name, err := splitKey(key)
	if err != nil {
		g.warnf("%v", err)
		return exit(1)
	}
	c, err := g.readConfig(file)
	if err != nil {
		return err
	}
	if add {
		c.AddOption(section, sub, name, value)
	} else {
		c.SetOption(section, sub, name, value)
	}
	return g.writeConfig(file, c)
}

// unset removes a key, or a whole section when name is "".
func (g *git) unset(file, section, sub, name string) (bool, error) {
	c, err := g.readConfig(file)
	if err != nil {
		return false, err
	}
	found := false
	for _, s := range c.Sections {
		if !strings.EqualFold(s.Name, section) {
			continue
		}
		if sub == "" && name != "" {
			n := len(s.Options)
			s.Options = slices.DeleteFunc(s.Options, func(o *format.Option) bool { return strings.EqualFold(o.Key, name) })
			found = found || len(s.Options) < n
		}
		for _, ss := range s.Subsections {
			if ss.Name == sub && name != "" {
				n := len(ss.Options)
				ss.Options = slices.DeleteFunc(ss.Options, func(o *format.Option) bool { return strings.EqualFold(o.Key, name) })
				found = found || len(ss.Options) < n
			}
		}
		if name == "" && sub != "" {
			n := len(s.Subsections)
			s.Subsections = slices.DeleteFunc(s.Subsections, func(ss *format.Subsection) bool { return ss.Name == sub })
			found = found || len(s.Subsections) < n
		}
		s.Subsections = slices.DeleteFunc(s.Subsections, func(ss *format.Subsection) bool { return len(ss.Options) == 0 })
	}
	if name == "" && sub == "" {
		n := len(c.Sections)
		c.Sections = slices.DeleteFunc(c.Sections, func(s *format.Section) bool { return strings.EqualFold(s.Name, section) })
		found = len(c.Sections) < n
	}
	c.Sections = slices.DeleteFunc(c.Sections, func(s *format.Section) bool { return len(s.Options) == 0 && len(s.Subsections) == 0 })
	if !found {
		return false, nil
	}
	return true, g.writeConfig(file, c)
}

// cmdConfig is git config.
func cmdConfig(g *git, r *repo) error {
	f, err := g.flags("+lez", "global=\x80", "local=\x81", "system=\x82", "list=l", "get=\x83", "get-all=\x84", "unset=\x85", "unset-all=\x85", "add=\x86",
		"file=\x87:", "name-only=\x88", "show-origin=\x89", "bool=\x8a", "int=\x8b", "type=\x8c:", "null=z", "get-regexp=\x8d", "default=\x8e:",
		"remove-section=\x8f", "replace-all=\x90", "edit=e", "path=\x91")
	if err != nil {
		return err
	}
	// git also accepts options after names
	g.args = f.Args
	file := ""
	switch f.Last("\x80\x81\x82\x87") {
	case 0x80:
		file = g.globalFile()
	case 0x82:
		file = "/etc/gitconfig"
	case 0x87:
		file = g.path(f.Value(0x87, ""))
	case 0x81:
		if r == nil {
			return fatalf("--local can only be used inside a git repository")
		}
		file = path.Join(r.git_, "config")
	}
	all := g.config(r)
	if file != "" {
		all = &settings{}
		all.load(g, file)
	}
	target := file
	if target == "" {
		if target = g.globalFile(); r != nil {
			target = path.Join(r.git_, "config")
		}
	}
	show := func(x setting, name bool) {
		if f.Has(0x89) {
			g.printf("file:%s\t", x.from)
		}
		v := x.value
		if f.Has(0x8a) || f.Value(0x8c, "") == "bool" {
			v = map[bool]string{true: "true", false: "false"}[truth(v)]
		}
		switch {
		case name && f.Has(0x88):
			g.printf("%s\n", x.key)
		case name:
			g.printf("%s=%s\n", x.key, v)
		default:
			g.printf("%s\n", v)
		}
	}
	args := f.Args
	switch {
	case f.Has('e'):
		return fatalf("there is no editor on this machine; use git config NAME VALUE")
	case f.Has('l'):
		for _, x := range all.all {
			show(x, true)
		}
		return nil
	case len(args) == 0:
		g.warnf("usage: git config [<options>]")
		return exit(129)
	case f.Has(0x8f):
		section, sub, _ := strings.Cut(args[0], ".")
		if ok, err := g.unset(target, section, sub, ""); err != nil || !ok {
			if err == nil {
				err = fatalf("no such section: %s", args[0])
			}
			return err
		}
		return nil
	case f.Has(0x85):
		section, sub, name, err := splitKey(args[0])
		if err != nil {
			g.warnf("%v", err)
			return exit(1)
		}
		ok, err := g.unset(target, section, sub, name)
		if err == nil && !ok {
			err = exit(5)
		}
		return err
	case f.Has(0x8d):
		n := 0
		for _, x := range all.all {
			if strings.Contains(x.key, strings.Trim(args[0], "^$*.")) {
				g.printf("%s %s\n", x.key, x.value)
				n++
			}
		}
		if n == 0 {
			return exit(1)
		}
		return nil
	case len(args) == 1 || f.Has(0x83) || f.Has(0x84):
		if _, _, _, err := splitKey(args[0]); err != nil {
			g.warnf("%v", err)
			return exit(1)
		}
		found := all.values(args[0])
		if len(found) == 0 {
			if f.Has(0x8e) {
				g.printf("%s\n", f.Value(0x8e, ""))
				return nil
			}
			return exit(1)
		}
		if !f.Has(0x84) {
			found = found[len(found)-1:]
		}
		for _, x := range found {
			show(x, false)
		}
		return nil
	}
	return g.set(target, args[0], args[1], f.Has(0x86))
}

// truth reads a boolean.
func truth(s string) bool {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}
