package files

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// minusMode matches an argument such as -w or -x+r, which is a mode and not an option.
var minusMode = regexp.MustCompile(`^-[rwxXstugoa,+=0-7-]*$`)

// chmod changes modes.
func chmod(c *tool.Call) int {
	var mode string
	args := c.Args
	for i, a := range args {
		if a == "--" {
			break
		}
		if len(a) > 1 && a != "--" && minusMode.MatchString(a) && !strings.HasPrefix(a, "--") {
			mode = a
			c.Args = append(append([]string{}, args[:i]...), args[i+1:]...)
			break
		}
	}
	f, ok := c.Flags("Rvcf", "recursive=R", "verbose=v", "changes=c", "silent=f", "quiet=f", "reference=\x81:", "no-preserve-root=\x82", "preserve-root=\x83")
	if !ok {
		return 1
	}
	names := f.Args
	var change modeChange
	switch {
	case f.Has(0x81):
		ref, err := statOf(c, f.Value(0x81, ""))
		if err != nil {
			return c.Errorf(1, "failed to get attributes of %s: %s", quoted(f.Value(0x81, "")), errText(err))
		}
		change = modeChange{octal: true, bits: permBits(ref.Mode), exact: true}
	default:
		if mode == "" {
			if missingOperand(c, names, 1) {
				return 1
			}
			mode, names = names[0], names[1:]
		}
		if len(names) == 0 {
			return usage(c, 1, "missing operand after %s", curly(mode))
		}
		if change, ok = parseMode(mode); !ok {
			return usage(c, 1, "invalid mode: %s", curly(mode))
		}
	}
	if missingOperand(c, names, 1) {
		return 1
	}
	status := 0
	out := c.Buffered()
	one := func(path string, i vfs.Info) {
		want := change.apply(i.Mode, c.Umask(), i.Mode.IsDir())
		err := c.FS().Chmod(c.Abs(path), want)
		was, is := permBits(i.Mode), permBits(want)
		switch {
		case err != nil:
			status = 1
			if !f.Has('f') {
				c.Errorf(1, "changing permissions of %s: %s", quoted(path), errText(err))
			}
			if f.Has('v') {
				fmt.Fprintf(out, "failed to change mode of %s from %04o (%s) to %04o (%s)\n", quoted(path), was, modeString(i.Mode)[1:], is, modeString(want)[1:])
			}
		case was != is && f.Last("vc") != 0:
			fmt.Fprintf(out, "mode of %s changed from %04o (%s) to %04o (%s)\n", quoted(path), was, modeString(i.Mode)[1:], is, modeString(want)[1:])
		case f.Has('v'):
			fmt.Fprintf(out, "mode of %s retained as %04o (%s)\n", quoted(path), was, modeString(i.Mode)[1:])
		}
		if strings.HasPrefix(mode, "-") && !change.octal && err == nil {
			if naive := change.apply(i.Mode, 0, i.Mode.IsDir()); naive != want {
				status = c.Errorf(1, "%s: new permissions are %s, not %s", shellQuote(path, false), modeString(want)[1:], modeString(naive)[1:])
			}
		}
	}
	for _, name := range names {
		if !f.Has('R') {
			i, err := statOf(c, name)
			if err != nil {
				status = 1
				if l, lerr := lstat(c, name); lerr == nil && isLink(l.Mode) && notExist(err) {
					if !f.Has('f') {
						c.Errorf(1, "cannot operate on dangling symlink %s", quoted(name))
					}
				} else if !f.Has('f') {
					c.Errorf(1, "cannot access %s: %s", quoted(name), errText(err))
				}
				continue
			}
			one(name, i)
			continue
		}
		if name == "/" && f.Has(0x83) {
			status = c.Errorf(1, "it is dangerous to operate recursively on '/'\nchmod: use --no-preserve-root to override this failsafe")
			continue
		}
		walk(c, name, followOperands, func(v visit) next {
			switch {
			case v.err != nil && v.dir:
				status = 1
				if !f.Has('f') {
					c.Errorf(1, "cannot read directory %s: %s", quoted(v.path), errText(v.err))
				}
			case v.err != nil:
				status = 1
				if !f.Has('f') {
					c.Errorf(1, "cannot access %s: %s", quoted(v.path), errText(v.err))
				}
			case !v.post && !isLink(v.info.Mode):
				one(v.path, v.info)
			}
			return goOn
		})
	}
	return flush(c, out, status)
}

// chown changes owners. Called as chgrp, it changes groups.
func chown(c *tool.Call) int {
	f, ok := c.Flags("RvcfhHLP", "recursive=R", "verbose=v", "changes=c", "silent=f", "quiet=f", "reference=\x81:", "from=\x82:", "no-dereference=h",
		"dereference=\x83", "no-preserve-root=\x84", "preserve-root=\x85")
	if !ok {
		return 1
	}
	names := f.Args
	group := c.Base() == "chgrp"
	var uid, gid int64 = -1, -1
	if f.Has(0x81) {
		ref, err := statOf(c, f.Value(0x81, ""))
		if err != nil {
			return c.Errorf(1, "failed to get attributes of %s: %s", quoted(f.Value(0x81, "")), errText(err))
		}
		gid = int64(ref.GID)
		if !group {
			uid = int64(ref.UID)
		}
	} else {
		if missingOperand(c, names, 2) {
			return 1
		}
		spec := names[0]
		names = names[1:]
		if group {
			spec = ":" + spec
		}
		if uid, gid, ok = owner(c, spec, group); !ok {
			return 1
		}
	}
	if missingOperand(c, names, 1) {
		return 1
	}
	var fromU, fromG int64 = -1, -1
	if f.Has(0x82) {
		if fromU, fromG, ok = owner(c, f.Value(0x82, ""), false); !ok {
			return 1
		}
	}
	o := chowner{c: c, uid: uid, gid: gid, fromU: fromU, fromG: fromG, group: group,
		verbose: f.Has('v'), changes: f.Has('c'), silent: f.Has('f'), links: f.Has('h')}
	for _, name := range names {
		if !f.Has('R') {
			look := statOf
			if f.Has('h') {
				look = lstat
			}
			i, err := look(c, name)
			if err != nil {
				o.failed("cannot access %s: %s", quoted(name), errText(err))
				continue
			}
			o.change(name, i)
			continue
		}
		mode := followNone
		switch f.Last("HLP") {
		case 'H':
			mode = followOperands
		case 'L':
			mode = followAll
		}
		walk(c, name, mode, func(v visit) next {
			switch {
			case v.err != nil && v.dir:
				o.failed("cannot read directory %s: %s", quoted(v.path), errText(v.err))
			case v.err != nil:
				o.failed("cannot access %s: %s", quoted(v.path), errText(v.err))
			case !v.post:
				o.change(v.path, v.info)
			}
			return goOn
		})
	}
	return o.status
}

// owner reads OWNER, OWNER:, OWNER:GROUP or :GROUP. A missing part is -1.
func owner(c *tool.Call, spec string, group bool) (uid, gid int64, ok bool) {
	uid, gid = -1, -1
	name, groupName, colon := strings.Cut(spec, ":")
	if !colon {
		if u, g, dotted := strings.Cut(spec, "."); dotted {
			if _, _, found := lookupUser(c, spec); !found {
				name, groupName, colon = u, g, true
			}
		}
	}
	if name != "" {
		u, g, found := lookupUser(c, strings.TrimPrefix(name, "+"))
		if !found {
			c.Errorf(1, "invalid user: %s", curly(spec))
			return 0, 0, false
		}
		uid = int64(u)
		if colon && groupName == "" {
			gid = int64(g)
		}
	}
	if groupName != "" {
		g, found := lookupGroup(c, groupName)
		if !found {
			said := spec
			if group {
				said = groupName
			}
			c.Errorf(1, "invalid group: %s", curly(said))
			return 0, 0, false
		}
		gid = int64(g)
	}
	return uid, gid, true
}

// chowner is one run of chown.
type chowner struct {
	c                                      *tool.Call
	uid, gid, fromU, fromG                 int64
	group, verbose, changes, silent, links bool
	status                                 int
}

func (o *chowner) failed(format string, args ...any) {
	o.status = 1
	if !o.silent {
		o.c.Errorf(1, format, args...)
	}
}

// names returns an owner and a group in the form of messages.
func (o *chowner) names(uid, gid uint32) string {
	m := o.c.Machine()
	switch {
	case o.group:
		return m.GroupName(gid)
	case o.uid >= 0 && o.gid >= 0:
		return m.UserName(uid) + ":" + m.GroupName(gid)
	case o.gid >= 0:
		return ":" + m.GroupName(gid)
	}
	return m.UserName(uid)
}

func (o *chowner) change(path string, i vfs.Info) {
	if o.fromU >= 0 && o.fromU != int64(i.UID) || o.fromG >= 0 && o.fromG != int64(i.GID) {
		return
	}
	uid, gid := i.UID, i.GID
	if o.uid >= 0 {
		uid = uint32(o.uid)
	}
	if o.gid >= 0 {
		gid = uint32(o.gid)
	}
	what := "ownership"
	if o.group {
		what = "group"
	}
	var err error
	switch {
	case isLink(i.Mode):
		err = o.c.FS().Lchown(o.c.Abs(path), uid, gid)
	default:
		err = o.c.FS().Chown(o.c.Abs(path), uid, gid)
	}
	switch {
	case err != nil:
		o.failed("changing %s of %s: %s", what, quoted(path), errText(err))
	case (uid != i.UID || gid != i.GID) && (o.verbose || o.changes):
		fmt.Fprintf(o.c.Out, "changed %s of %s from %s to %s\n", what, quoted(path), o.names(i.UID, i.GID), o.names(uid, gid))
	case o.verbose:
		fmt.Fprintf(o.c.Out, "%s of %s retained as %s\n", what, quoted(path), o.names(i.UID, i.GID))
	}
}
