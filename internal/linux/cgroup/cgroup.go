// Package cgroup bounds and measures a tree of processes with Linux control groups, versions 1 and
// 2, and mixtures of both.
//
// # Terms
//
// A [Hierarchy] is the place on this host under which groups are made: one parent directory per
// controller, all with the same name, for example carrel/1f3a. A [Group] is one sandbox's group
// below it, in every hierarchy that has a controller we use.
//
// # Rules
//
// This package moves, remounts and changes nothing that exists. It makes only its own sub-groups,
// below the first place where the kernel allows it. A process is born inside its group
// ([Group.Start]) and never moved there later. So at no moment do its children or its memory escape
// the account.
//
// A host without any writable group is not an error. [Open] then returns a Hierarchy whose
// [Hierarchy.Missing] gives the reason, and whose groups do nothing.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// Controller is the name of a resource controller.
type Controller string

// The controllers this package uses. CPUAcct is part of CPU in version 2.
const (
	Memory  Controller = "memory"
	CPU     Controller = "cpu"
	CPUAcct Controller = "cpuacct"
	Pids    Controller = "pids"
)

// controllers are all the controllers that we use, in a fixed order.
var controllers = []Controller{Memory, CPU, CPUAcct, Pids}

// Hierarchy is the place on this host where we may make groups. It is safe for concurrent use.
type Hierarchy struct {
	name    string
	without []Controller
	v2      string                // parent directory in the unified hierarchy, "" if unusable
	v2Has   map[Controller]bool   // controllers of v2 there
	v1      map[Controller]string // parent directory by controller
	missing map[Controller]error  // why a controller can't be used
}

// Open finds places where groups named name can be made, and makes the parent groups. name is a
// relative path such as "carrel/1f3a". Two programs that must not see each other's groups use
// different names.
//
// The controllers of without are left alone, as far as groups above do not have them: a group of
// the CPU controller changes how much its processes get beside others, whatever limit it has.
func Open(name string, without ...Controller) (*Hierarchy, error) {
	if name == "" || !filepath.IsLocal(name) {
		return nil, fmt.Errorf("open cgroups: bad name %q", name)
	}
	h := &Hierarchy{name: name, without: without, v2Has: map[Controller]bool{}, v1: map[Controller]string{}, missing: map[Controller]error{}}
	mounts, err := readMounts()
	if err != nil {
		return nil, fmt.Errorf("open cgroups: %w", err)
	}
	own, err := ownGroups("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("open cgroups: %w", err)
	}
	var v2err error
	for _, m := range mounts {
		if m.v2 && h.v2 == "" {
			v2err = h.openV2(m, own, name)
		}
	}
	for _, c := range controllers {
		if h.v2Has[c] || (c == CPUAcct && h.v2Has[CPU]) || slices.Contains(without, c) {
			continue
		}
		if err := h.openV1(c, mounts, own, name); err != nil {
			if v2err != nil {
				err = errors.Join(err, v2err)
			}
			h.missing[c] = err
		}
	}
	return h, nil
}

// openV2 finds a parent in the unified hierarchy: the root of the mount, else the parent of our own
// group, else our own group. The last works only if no process lives in our own group (a delegated
// group with a sub-group for the service).
func (h *Hierarchy) openV2(m mount, own map[string]string, name string) error {
	self := m.path(own[""])
	var errs []error
	for _, base := range unique(m.dir, filepath.Dir(self), self) {
		if base != m.dir && !strings.HasPrefix(base, m.dir+"/") {
			continue
		}
		has := h.wanted(base)
		if !has[Memory] && !has[CPU] && !has[Pids] {
			errs = append(errs, fmt.Errorf("%s has no memory, cpu or pids controller", base))
			continue
		}
		parent, err := makeV2(base, name, has)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		h.v2 = parent
		for _, c := range controllers {
			if has[c] && readWords(filepath.Join(parent, "cgroup.subtree_control"))[c] {
				h.v2Has[c] = true
			}
		}
		return nil
	}
	return errors.Join(errs...)
}

// wanted are the controllers of a version 2 group that our groups are to have.
func (h *Hierarchy) wanted(base string) map[Controller]bool {
	has := readWords(filepath.Join(base, "cgroup.controllers"))
	for _, c := range h.without {
		delete(has, c)
	}
	return has
}

// makeV2 makes base/name and delegates the controllers to its children.
func makeV2(base, name string, has map[Controller]bool) (string, error) {
	dir := base
	for _, part := range append([]string{""}, strings.Split(name, "/")...) {
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		for c := range has {
			// A controller that can't be delegated is missing; the others still work.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+string(c)), 0)
		}
	}
	if len(readWords(filepath.Join(dir, "cgroup.subtree_control"))) == 0 {
		for d := dir; d != base; d = filepath.Dir(d) {
			_ = os.Remove(d) // removes only empty ones
		}
		return "", fmt.Errorf("%s: no controller can be handed down (processes live in its parent, or it is not delegated to us)", dir)
	}
	probe := filepath.Join(dir, "probe")
	if err := os.Mkdir(probe, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, os.Remove(probe)
}

// openV1 finds a parent for one version 1 controller: the root of its mount, else our own group.
func (h *Hierarchy) openV1(c Controller, mounts []mount, own map[string]string, name string) error {
	err := fmt.Errorf("the %s controller is not mounted", c)
	for _, m := range mounts {
		if m.v2 || !m.has[c] {
			continue
		}
		for _, base := range unique(m.dir, m.path(own[string(c)])) {
			dir := filepath.Join(base, name)
			if err = os.MkdirAll(dir, 0o755); err != nil {
				continue
			}
			if c == Memory {
				// Without it a group's limit ignores the memory of sub-groups. Today it is the
				// default.
				_ = os.WriteFile(filepath.Join(dir, "memory.use_hierarchy"), []byte("1"), 0)
			}
			h.v1[c] = dir
			return nil
		}
	}
	return err
}

// remake makes the parents again. Close of another Hierarchy with the same name may have removed
// them.
func (h *Hierarchy) remake() {
	if base, ok := strings.CutSuffix(h.v2, "/"+h.name); ok {
		_, _ = makeV2(base, h.name, h.wanted(base))
	}
	for _, dir := range h.v1 {
		_ = os.MkdirAll(dir, 0o755)
	}
}

// Has reports whether a controller can be used.
func (h *Hierarchy) Has(c Controller) bool {
	if c == CPUAcct && h.v2Has[CPU] {
		return true
	}
	return h.v2Has[c] || h.v1[c] != ""
}

// Any reports whether any controller can be used.
func (h *Hierarchy) Any() bool { return h.v2 != "" || len(h.v1) > 0 }

// Missing returns, for each controller that can't be used, the reason.
func (h *Hierarchy) Missing() map[Controller]error { return h.missing }

// List returns the names of the groups that exist.
func (h *Hierarchy) List() []string {
	set := map[string]bool{}
	for _, dir := range h.parents() {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() {
				set[e.Name()] = true
			}
		}
	}
	names := make([]string, 0, len(set))
	for n := range set {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Close removes the parent groups if no group is left in them.
func (h *Hierarchy) Close() error {
	for _, d := range h.parents() {
		_ = os.Remove(d)
	}
	return nil
}

// parents returns the parent directories without duplicates (cpu and cpuacct are often one mount).
func (h *Hierarchy) parents() []string {
	var dirs []string
	if h.v2 != "" {
		dirs = append(dirs, h.v2)
	}
	for _, c := range controllers {
		if d := h.v1[c]; d != "" {
			dirs = append(dirs, d)
		}
	}
	return unique(dirs...)
}

// unique drops duplicates.
func unique(in ...string) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
