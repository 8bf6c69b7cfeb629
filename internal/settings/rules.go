package settings

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// paths adds the layers' rules about paths, searches, and puts the result into the box.
func (v *resolver) paths() error {
	for _, l := range v.layers[1:] {
		stateKeeper{v}.add(l)
		said := map[string]string{} // this layer's rules by name, to notice contradictions
		for _, list := range []struct {
			key      string
			patterns []string
			op       operation
		}{
			{"read.deny", l.Read.Deny, readDeny}, {"read.allow", l.Read.Allow, readAllow}, {"write.deny", l.Write.Deny, writeDeny}, {"write.allow", l.Write.Allow, writeAllow},
		} {
			for i, p := range list.patterns {
				if err := v.pattern(l, list.key, i, p, list.op, said); err != nil {
					return err
				}
			}
		}
		v.protect(l)
		v.socketPaths(l)
	}
	v.gitDirs()
	v.look()
	v.finishPaths()
	return nil
}

// pattern adds one entry of a list.
func (v *resolver) pattern(l *layer, key string, i int, p string, op operation, said map[string]string) error {
	at := l.at(key, i)
	t, err := v.target(l, p, op.deny())
	if err != nil {
		return invalid(at, "", "%w", err)
	}
	if t.path == "" {
		return v.globbed(l, at, p, t, op)
	}
	path, there := v.canonical(t.path), v.exists(t.path)
	if to := v.linked(path); to != "" {
		if op.deny() {
			v.tree.add(&decision{path: path, op: op, layer: l.place, rule: at, source: l.Source})
		}
		path = to
	}
	if other, both := contradicts(said, path, key); both && l.srt == nil {
		return invalid(at, "take one of them away", "%s is named in %s too, which says the opposite", v.short(path), other)
	}
	over := false
	if l.srt != nil {
		op, over = srtOrder(said, path, op)
	}
	said[path+"\x00"+key] = at
	lifts := op == writeAllow && v.protectedName(path)
	switch {
	case there || lifts:
		v.tree.add(&decision{path: path, op: op, layer: l.place, rule: at, source: l.Source, over: over})
	case op == writeDeny:
		v.guarded = append(v.guarded, Protected{Pattern: path, Rule: at, Source: l.Source, layer: l.place})
	case l.flags && !op.deny():
		return invalid(at, "make it first", "%s does not exist", v.short(path))
	case slices.Contains(v.box.Missing, t.path):
		v.note("%s: %s is made before the command starts", at, v.short(path))
	case stateKeeper{v}.replaced(path):
	default:
		v.note("%s: %s does not exist: left out", at, v.short(path))
	}
	return nil
}

// opposites has, for each list, the lists with the opposite meaning.
var opposites = map[string][]string{
	"read.allow": {"read.deny"}, "read.deny": {"read.allow", "write.allow"}, "write.allow": {"write.deny", "read.deny"}, "write.deny": {"write.allow"},
}

func contradicts(said map[string]string, path, key string) (string, bool) {
	for _, o := range opposites[key] {
		if at, ok := said[path+"\x00"+o]; ok {
			return at, true
		}
	}
	return "", false
}

// srtOrder applies sandbox-runtime's order within its file. An allowed read wins over a denied one.
// A denied write wins over an allowed one, and over all below it.
func srtOrder(said map[string]string, path string, op operation) (operation, bool) {
	if op != writeAllow {
		return op, op == readAllow
	}
	for k := range said {
		if denied, ok := strings.CutSuffix(k, "\x00write.deny"); ok && inside(path, denied) {
			return readAllow, false
		}
	}
	return op, false
}

// protectedName reports whether the name of a path protects it. Names at or above the working
// directory do not protect, because the user chose that directory.
func (v *resolver) protectedName(path string) bool {
	return slices.ContainsFunc(v.guarded, func(g Protected) bool { return g.covers(path, v.above(path)) })
}

// above returns the directory below which a protected name in a path counts.
func (v *resolver) above(path string) string {
	if path != v.dir && inside(path, v.dir) {
		return v.dir
	}
	return ""
}

// named decides about paths that a layer opens although their name is protected. If it names them, the
// stronger layer wins, and a built-in protection is always lifted. A pattern lifts nothing.
func (v *resolver) named() {
	for p, at := range v.tree.points {
		d := at.write
		if d == nil || d.op != writeAllow || d.layer == 0 {
			continue
		}
		if d.glob { // no naming: what a name protects stays so, also below a directory that is closed
			if i := slices.IndexFunc(v.guarded, func(g Protected) bool { return g.covers(p, v.above(p)) }); i >= 0 {
				g := &v.guarded[i]
				at.write = &decision{path: p, op: writeDeny, layer: d.layer, rule: g.Rule, source: g.Source}
			}
			continue
		}
		for i := range v.guarded {
			g := &v.guarded[i]
			if !g.covers(p, v.above(p)) {
				continue
			}
			if g.layer > at.write.layer {
				at.write = &decision{path: p, op: writeDeny, layer: g.layer, rule: g.Rule, source: g.Source}
				break
			}
			at.write.keep = true
			g.Except = append(g.Except, p)
		}
	}
	for i := range v.guarded {
		slices.Sort(v.guarded[i].Except)
	}
}

// globbed adds a pattern. A pattern that holds anywhere joins the search; one with a directory is
// resolved at once.
func (v *resolver) globbed(l *layer, at, p string, t target, op operation) error {
	if op == writeDeny {
		g := Protected{Pattern: t.rest, Dir: t.dir, Deep: t.deep, Rule: at, Source: l.Source, layer: l.place}
		if strings.Contains(t.rest, "**") {
			v.note("%s: ** between directories closes what is there now, not what is made later", at)
		} else {
			v.guarded = append(v.guarded, g)
		}
	}
	dir := v.real(t.dir)
	everywhere := op == readDeny && (inside(dir, v.dir) || !ofMachine(dir)) && !strings.Contains(t.rest, "**") && v.Exists == nil
	if t.deep && op.deny() && (dir == v.dir || everywhere) {
		v.wanted = append(v.wanted, &wanted{pattern: t.rest, dir: dir, op: op, by: l, rule: at, source: l.Source})
		v.patterned = append(v.patterned, dir)
		return nil
	}
	found, cut, err := v.glob(target{dir: v.real(t.dir), rest: t.rest, deep: t.deep})
	switch {
	case err != nil:
		return invalid(at, "", "%s: %w", show(p), err)
	case cut && op == readDeny && dir != "/": // a part was not searched and must not stay readable
		v.note("!%s: %s was not looked for everywhere below %s, so all of that is closed: name directories", at, show(p), v.short(t.dir))
		found = append(found, dir)
	case cut:
		v.note("!%s: %s was not looked for everywhere below %s: name directories", at, show(p), v.short(t.dir))
	case len(found) == 0:
		v.note("%s: %s matches nothing", at, show(p))
	}
	w := &wanted{op: op, by: l, rule: at, source: l.Source}
	for _, f := range found {
		if to := v.linked(f); to != "" && !op.deny() {
			v.note("%s: %s is a link and was left out: name %s", at, v.short(f), v.short(to))
			continue
		}
		v.closeFound(w, f)
	}
	return nil
}

// protect adds a layer's own protected names. It also notes names that the layer lifts although no
// such protection exists.
func (v *resolver) protect(l *layer) {
	for i, name := range l.Write.Protect {
		at := l.at("write.protect", i)
		p := Protected{Pattern: strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/"), Deep: true, Rule: at, Source: l.Source, layer: l.place}
		if rest, ok := strings.CutPrefix(p.Pattern, "~"); ok {
			p.Pattern = v.home + rest
		}
		if filepath.IsAbs(p.Pattern) {
			p.Deep = false
			v.guarded = append(v.guarded, p)
			if v.exists(p.Pattern) {
				v.tree.add(&decision{path: v.canonical(p.Pattern), op: writeDeny, layer: l.place, rule: at, source: l.Source})
			}
			continue
		}
		v.guarded = append(v.guarded, p)
		v.wanted = append(v.wanted, &wanted{pattern: p.Pattern, op: writeDeny, by: l, rule: at, source: l.Source})
	}
	for i, name := range l.Write.Unprotect {
		if known := guardedNames(); !lifts(name, known) {
			hint := ""
			if n := near(name, known); n != "" {
				hint = ": did you mean " + n + "?"
			}
			v.note("!%s: %s is no protected name%s", l.at("write.unprotect", i), show(name), hint)
		}
	}
}

func lifts(name string, known []string) bool {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	return slices.ContainsFunc(known, func(k string) bool { return k == name || strings.HasPrefix(k, name+"/") })
}

func guardedNames() []string {
	var out []string
	for _, list := range [][]guarded{runLater, runLaterHome} {
		for _, g := range list {
			out = append(out, g.names...)
		}
	}
	return out
}

// socketPaths makes visible the sockets that programs may connect to.
func (v *resolver) socketPaths(l *layer) {
	for i, s := range l.Network.Sockets {
		t, err := v.target(l, s, false)
		if s == "*" || err != nil || t.path == "" || !v.exists(t.path) {
			continue
		}
		v.tree.add(&decision{path: v.real(t.path), op: readAllow, layer: l.place, rule: l.at("network.sockets", i), source: l.Source})
	}
}

// look searches the working directory and the writable directories.
func (v *resolver) look() {
	if v.Exists != nil {
		return
	}
	written := v.searched()
	for _, l := range v.layers {
		if l.srt != nil && l.srt.depth > 0 {
			v.depth = l.srt.depth
		}
	}
	v.follow()
	named, rest := v.elsewhere(written)
	newSearch(v, v.wanted).run(written, named, rest)
	repositoryGuard{v}.guardRepositories()
	v.otherNames(written, named, rest)
	v.secondMounts()
	for _, w := range v.wanted {
		if w.by != nil && !w.hit {
			v.note("%s: %s matches nothing", w.rule, show(w.pattern))
		}
	}
}

// searched returns the directories of a full search: the working directory and the writable ones.
func (v *resolver) searched() []string {
	roots := []string{v.dir}
	for p, at := range v.tree.points {
		if at.write != nil && at.write.op == writeAllow && p != v.dir && p != "/" {
			roots = append(roots, p)
		}
	}
	slices.SortFunc(roots, comparePaths)
	return roots
}

// otherNames closes other names of files that the search has found. Few secrets have any.
func (v *resolver) otherNames(written, named, rest []string) {
	several := map[uint64][]covered{}
	for p, at := range v.tree.points {
		if at.read == nil || at.read.op != readDeny || !at.read.glob {
			continue
		}
		if f, links, ok := fileOf(p); ok && links > 1 && len(v.box.covered[f.ino]) == 0 {
			several[f.ino] = append(several[f.ino], covered{p, at.read})
		}
	}
	if len(several) == 0 {
		return
	}
	maps.Copy(v.box.covered, several)
	s := newSearch(v, nil)
	s.inodes = several
	s.run(written, named, rest)
}

// finishPaths turns the decisions into rules.
func (v *resolver) finishPaths() {
	b := v.box
	v.named()
	stateKeeper{v}.finish()
	v.tree.private = map[string]bool{}
	b.Private = slices.DeleteFunc(b.Private, func(p string) bool {
		at := v.tree.points[p]
		named := at != nil && at.read != nil && !at.read.op.deny()
		v.tree.private[p] = !named
		return named
	})
	b.Paths = v.tree.rules(v.short)
	stateKeeper{v}.keepApart()
	b.Protected = v.guarded
	b.ReadDefault, b.WriteDefault = Readable, Denied
	if !v.tree.readDefault {
		b.ReadDefault = Denied
	}
	if v.tree.writeDefault {
		b.WriteDefault = Writable
	}
}
