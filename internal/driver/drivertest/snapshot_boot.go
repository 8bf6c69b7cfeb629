package drivertest

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
)

// uuid is what names a boot.
var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// testBoot checks that each new life of a sandbox has a boot ID of its own, and that a sandbox that
// resumes keeps its boot ID.
func (s *suite) testBoot(t *testing.T) {
	const read = "cat /proc/sys/kernel/random/boot_id"
	d := s.open(t)
	b := s.box(t, d)
	if b.must(t, "[ -e /proc/sys/kernel/random/boot_id ] && echo yes || echo no") == "no" {
		return // a machine that names no boot
	}
	first := b.must(t, read)
	seen := map[string]string{}
	draws := func(of *box, who string) string {
		t.Helper()
		id := of.must(t, read)
		if other := seen[id]; other != "" || !uuid.MatchString(id) {
			t.Errorf("%s has the boot %q, as %q", who, id, other)
		}
		seen[id] = who
		of.want(t, read+"; "+read, id+"\n"+id)
		return id
	}
	draws(b, "the original")
	draws(s.box(t, d), "another sandbox")
	m := b.snapshot(t, driver.SnapshotOptions{})
	one := s.restore(t, d, m, driver.RestoreOptions{})
	own := draws(one, "a fork")
	draws(s.restore(t, d, m, driver.RestoreOptions{}), "another fork")
	draws(s.restore(t, d, m, driver.RestoreOptions{FilesOnly: true, SameBoot: true}), "a boot from files")
	paused := one.snapshot(t, driver.SnapshotOptions{})
	on := s.restore(t, d, paused, driver.RestoreOptions{SameBoot: true})
	if !m.info.Memory {
		draws(on, "a start without memory")
	} else if id := on.must(t, read); id != own {
		t.Errorf("what goes on has the boot %q, had %q", id, own)
	}
	draws(s.restore(t, d, paused, driver.RestoreOptions{}), "a fork's fork")
	if id := b.must(t, read); id != first {
		t.Errorf("the original has the boot %q, had %q", id, first)
	}
}

// testAnnounced checks that programs in a fork learn that it is a fork: by a file that they can
// watch, and by their hooks.
func (s *suite) testAnnounced(t *testing.T) {
	if !s.info.Capabilities.MemorySnapshot {
		return // no program runs on that would have to learn it
	}
	d := s.open(t)
	b := s.box(t, d)
	dir := guest.GenerationFile[:strings.LastIndexByte(guest.GenerationFile, '/')]
	b.want(t, "[ -d "+dir+" ] && [ ! -e "+guest.GenerationFile+" ] && echo ready", "ready")
	b.must(t, "mkdir -p "+guest.HookDir+" && printf '#!/bin/sh\\necho $CARREL_GENERATION $CARREL_SANDBOX_ID >/tmp/hooked\\n' >"+guest.HookDir+"/10-mine && chmod 755 "+guest.HookDir+"/10-mine")
	m := b.snapshot(t, driver.SnapshotOptions{})
	for generation := 1; generation < 3; generation++ {
		r := s.restore(t, d, m, driver.RestoreOptions{})
		if err := r.conn.Init(t.Context(), guest.InitRequest{Timestamp: time.Now(), SandboxID: string(r.spec.ID), Restored: true, Generation: generation}); err != nil {
			t.Fatal(err)
		}
		n := string(rune('0' + generation))
		r.want(t, "cat "+guest.GenerationFile+" /tmp/hooked", n+"\n"+n+" "+string(r.spec.ID))
		m = r.snapshot(t, driver.SnapshotOptions{})
	}
	b.want(t, "[ -e "+guest.GenerationFile+" ] || echo none", "none")
}
