package files

import (
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// touch sets times and makes empty files.
func touch(c *tool.Call) int {
	f, ok := c.Flags("acd:fhmr:t:", "no-create=c", "date=d", "no-dereference=h", "reference=r", "time=\x81:")
	if !ok {
		return 1
	}
	when := c.Now()
	access, modify := f.Has('a'), f.Has('m')
	switch v := f.Value(0x81, ""); v {
	case "":
	case "atime", "access", "use":
		access = true
	case "mtime", "modify":
		modify = true
	default:
		return usage(c, 1, "invalid argument %s for %s", curly(v), curly("--time"))
	}
	if !access && !modify {
		access, modify = true, true
	}
	given, accessedAt := false, time.Time{}
	if f.Has('r') {
		i, err := statOf(c, f.Value('r', ""))
		if err != nil {
			return c.Errorf(1, "failed to get attributes of %s: %s", quoted(f.Value('r', "")), errText(err))
		}
		when, accessedAt, given = i.Modified, i.Accessed, true
	}
	if f.Has('d') {
		accessedAt = time.Time{}
		if when, ok = parseDate(f.Value('d', ""), when); !ok {
			return c.Errorf(1, "invalid date format %s", curly(f.Value('d', "")))
		}
		given = true
	}
	if f.Has('t') {
		if given {
			return usage(c, 1, "cannot specify times from more than one source")
		}
		if when, ok = parseStamp(f.Value('t', ""), when); !ok {
			return c.Errorf(1, "invalid date format %s", curly(f.Value('t', "")))
		}
	}
	if len(f.Args) == 0 {
		return usage(c, 1, "missing file operand")
	}
	times := vfs.Times{NoFollow: f.Has('h')}
	if modify {
		times.Modified = when
	}
	if access {
		if times.Accessed = when; !accessedAt.IsZero() {
			times.Accessed = accessedAt
		}
	}
	status := 0
	for _, name := range f.Args {
		if !c.Step(4) {
			return 1
		}
		if name == "-" {
			continue
		}
		if err := touchOne(c, name, times, f.Has('c')); err != nil {
			status = c.Errorf(1, "cannot touch %s: %s", quoted(name), errText(err))
		}
	}
	return status
}

func touchOne(c *tool.Call, name string, times vfs.Times, noCreate bool) error {
	look := statOf
	if times.NoFollow {
		look = lstat
	}
	_, err := look(c, name)
	switch {
	case err == nil:
		return c.FS().SetTimes(c.Abs(name), times)
	case !notExist(err):
		return err
	case noCreate:
		return nil
	}
	out, err := c.Open(name, vfs.WriteOnly|vfs.CreateNew, 0o666)
	if err != nil {
		return err
	}
	_ = out.Close() // nothing was written
	return c.FS().SetTimes(c.Abs(name), times)
}
