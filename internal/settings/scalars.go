package settings

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of a box if no layer sets any. The memory limit is most of the machine's memory.
const (
	defaultPids   = 4096
	defaultFileMB = 16 << 10
	defaultTmpMB  = 1 << 10
)

// scalars decides every setting with one value: the strongest layer that sets it wins.
func (v *resolver) scalars() error {
	b := v.box
	b.Pids, b.FileMB, b.TmpMB, b.MemoryMB = defaultPids, defaultFileMB, defaultTmpMB, mostMemory()
	b.Bind = true
	v.tree.readDefault, v.tree.writeDefault = true, false
	tier, walls := "", ""
	for _, l := range v.layers {
		set(&tier, l.Tier)
		set(&walls, l.Walls)
		if l.Read.Default != "" {
			v.tree.readDefault = l.Read.Default == "allow"
		}
		if l.Write.Default != "" {
			v.tree.writeDefault = l.Write.Default == "allow"
		}
		if l.Overlay != nil {
			b.Overlay = *l.Overlay
		}
		if l.Terminal != "" {
			b.NoTerminal = l.Terminal == "none"
		}
		if l.untrusted && tighten(&l.Limits, b) {
			v.note("!%s is not trusted: limits that are wider than yours were left out", l.Source)
		}
		b.limit(l.Limits)
	}
	b.Tier, b.Light = tierOf(tier), walls == "light"
	if v.tree.writeDefault && !v.tree.readDefault {
		return invalid("write.default", "allow reading too, or name the directories in write.allow", "what may be written by default may not be read by default")
	}
	return nil
}

func set(into *string, s string) {
	if s != "" {
		*into = s
	}
}

func put[T any](into *T, from *T) {
	if from != nil {
		*into = *from
	}
}

func (b *Box) limit(l Limits) {
	put(&b.CPUs, l.CPUs)
	put(&b.MemoryMB, l.MemoryMB)
	put(&b.Pids, l.Pids)
	put(&b.FileMB, l.FileMB)
	put(&b.TmpMB, l.TmpMB)
	put(&b.OpenFiles, l.OpenFiles)
	put(&b.Timeout, l.Timeout)
}

// said counts the settings of a layer.
func (l *layer) said() int {
	s := &l.Settings
	n := len(s.Profiles) + len(s.Tier) + len(s.Terminal) + len(s.Walls) + len(s.Env.Pass) + len(s.Env.Strip) + len(s.Env.Set) + len(s.Network.PolicyRef) + len(s.Network.Sockets) + len(s.Network.Publish)
	for _, p := range []PathRules{s.Read, s.Write} {
		n += len(p.Allow) + len(p.Deny) + len(p.Default) + len(p.Protect) + len(p.Unprotect)
	}
	for _, given := range []bool{s.Network.Allow != nil, s.Network.Deny != nil, s.Network.Policy != nil, s.Network.Bind != nil, s.Network.Host, s.Env.Clear, s.Overlay != nil, s.Limits != Limits{}} {
		if given {
			n++
		}
	}
	return n
}

// check refuses values that no layer may have.
func check(name string, s Settings) error {
	at := func(key string) string { return name + ": " + key }
	for _, w := range []struct {
		key, value string
		words      []string
	}{
		{"tier", s.Tier, []string{"ns", "gvisor", "sim"}}, {"terminal", s.Terminal, []string{"own", "none"}}, {"walls", s.Walls, []string{"full", "light"}},
		{"read.default", s.Read.Default, []string{"allow", "deny"}}, {"write.default", s.Write.Default, []string{"allow", "deny"}},
	} {
		if w.value != "" && !slices.Contains(w.words, w.value) {
			return invalid(at(w.key), "one of: "+strings.Join(w.words, ", "), "%s is none of the words that may stand here", show(w.value))
		}
	}
	for i, p := range slices.Concat(s.Write.Protect, s.Write.Unprotect) {
		if err := checkProtect(p); err != nil {
			return invalid(at(fmt.Sprintf("write.protect[%d]", i)), "", "%w", err)
		}
	}
	if s.Network.Policy != nil && s.Network.PolicyRef != "" {
		return invalid(at("network.policy"), "", "both a policy and the name of one are given")
	}
	if err := checkEnv(name, s.Env); err != nil {
		return err
	}
	return checkNetwork(name, s.Network)
}

func checkProtect(p string) error {
	switch {
	case strings.TrimLeft(p, "./*") == "" || strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("%s is no name", show(p))
	case strings.Contains(p, "**") || strings.Contains("/"+p+"/", "/../"):
		return fmt.Errorf("%s: a protected name holds in every directory, and has neither ** nor .. in it", show(p))
	}
	return checkGlob(p)
}

// onlyCloses removes from an untrusted layer everything that would open the box.
func (v *resolver) onlyCloses(l *layer) {
	var out []string
	drop := func(key string, given bool) {
		if given {
			out = append(out, key)
		}
	}
	s := &l.Settings
	drop("profiles", len(s.Profiles) > 0)
	drop("tier", s.Tier != "")
	drop("read.allow", len(s.Read.Allow) > 0)
	drop("read.default", s.Read.Default == "allow")
	drop("write.allow", len(s.Write.Allow) > 0)
	drop("write.default", s.Write.Default == "allow")
	drop("write.unprotect", len(s.Write.Unprotect) > 0)
	drop("network.allow", len(s.Network.Allow) > 0)
	drop("network.policy", s.Network.Policy != nil || s.Network.PolicyRef != "")
	drop("network.sockets", len(s.Network.Sockets) > 0)
	drop("network.publish", len(s.Network.Publish) > 0)
	drop("network.host", s.Network.Host)
	drop("network.bind", s.Network.Bind != nil && *s.Network.Bind)
	drop("env.pass", len(s.Env.Pass) > 0)
	drop("env.set", len(s.Env.Set) > 0)
	drop("overlay", s.Overlay != nil && !*s.Overlay)
	drop("terminal", s.Terminal == "own")
	drop("walls", s.Walls != "")
	kept := Settings{
		Read:    PathRules{Deny: s.Read.Deny},
		Write:   PathRules{Deny: s.Write.Deny, Protect: s.Write.Protect},
		Network: NetworkRules{Deny: s.Network.Deny},
		Env:     EnvRules{Strip: s.Env.Strip, Clear: s.Env.Clear},
		Limits:  s.Limits,
	}
	if s.Read.Default == "deny" {
		kept.Read.Default = "deny"
	}
	if s.Write.Default == "deny" {
		kept.Write.Default = "deny"
	}
	if s.Network.Allow != nil && len(s.Network.Allow) == 0 {
		kept.Network.Allow = []string{}
	}
	if b := s.Network.Bind; b != nil && !*b {
		kept.Network.Bind = b
	}
	if o := s.Overlay; o != nil && *o {
		kept.Overlay = o
	}
	if s.Terminal == "none" {
		kept.Terminal = "none"
	}
	l.Settings = kept
	if len(out) > 0 {
		v.note("!%s is not trusted, so this in it was left out: %s (look at it, then: carrel run --trust)", l.Source, strings.Join(out, ", "))
	}
}

// tighten keeps only those limits of an untrusted layer that are tighter than the limits of weaker
// layers.
func tighten(l *Limits, b *Box) (loose bool) {
	num := func(p **int, have int) {
		if *p != nil && (**p == 0 || have != 0 && **p > have) {
			*p, loose = nil, true
		}
	}
	num(&l.MemoryMB, b.MemoryMB)
	num(&l.Pids, b.Pids)
	num(&l.FileMB, b.FileMB)
	num(&l.TmpMB, b.TmpMB)
	num(&l.OpenFiles, b.OpenFiles)
	if p := l.CPUs; p != nil && (*p == 0 || b.CPUs != 0 && *p > b.CPUs) {
		l.CPUs, loose = nil, true
	}
	if p := l.Timeout; p != nil && (*p == 0 || b.Timeout != 0 && *p > b.Timeout) {
		l.Timeout, loose = nil, true
	}
	return loose
}
