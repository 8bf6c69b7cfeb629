package dockerfile

import "github.com/moby/buildkit/frontend/dockerfile/instructions"

// UsesContext reports whether a step of any stage reads files of the build's context. The ONBUILD
// instructions of a base, which may do so too, are not known yet.
func (f *File) UsesContext() bool {
	t, err := f.parse(nil)
	if err != nil {
		return false
	}
	for i := range t.stages {
		for _, c := range t.stages[i].Commands {
			if o, ok := c.(*instructions.OnbuildCommand); ok {
				if trigger, err := parseTrigger(o.Expression); err == nil {
					c = trigger
				}
			}
			if usesContext(c) {
				return true
			}
		}
	}
	return false
}

func usesContext(c instructions.Command) bool {
	switch c := c.(type) {
	case *instructions.CopyCommand:
		return c.From == "" && len(c.SourcePaths) > 0
	case *instructions.AddCommand:
		return len(c.SourcePaths) > 0 // which of them are addresses may depend on variables
	case *instructions.RunCommand:
		// The kinds of mounts are known once words are filled in. Words that need a variable stay.
		if err := c.Expand(func(word string) (string, error) { return word, nil }); err != nil {
			return true
		}
		for _, m := range instructions.GetMounts(c) {
			if m.Type == instructions.MountTypeBind && m.From == "" {
				return true
			}
		}
	}
	return false
}
