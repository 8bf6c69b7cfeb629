package service

import (
	"context"
	"path/filepath"

	"github.com/carrel-dev/carrel/internal/inbox"
	"github.com/carrel-dev/carrel/internal/service/golden"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/service/warm"
	"github.com/carrel-dev/carrel/internal/state"
)

// assemble makes the parts of a service and connects them. It starts nothing.
func assemble(ctx context.Context, o *Options) *Service {
	log := o.Logger
	s := &Service{opts: o, log: log, closed: make(chan struct{})}
	t := newTable(ctx, o)
	snaps := timeline.New()
	rules := &rules{opts: o}
	j := &journal{opts: o, log: log, table: t, hub: newHub(), census: &census{}}
	t.warn = j.warnSoft
	lost := &lostAndFound{opts: o, log: log, table: t, snaps: snaps, journal: j}
	roots := &roots{opts: o, log: log, table: t, snaps: snaps, lost: lost, young: youngRoot}
	records := &records{opts: o, log: log, table: t, snaps: snaps}
	resolver := &resolver{opts: o, snaps: snaps}
	launcher := &launcher{opts: o, log: log, table: t, roots: roots, resolver: resolver}
	greeter := &greeter{opts: o, log: log, table: t, journal: j}
	networks := &networks{opts: o, log: log, table: t, rules: rules, journal: j, records: records, greeter: greeter}
	networks.inbox = inbox.New(inbox.Options{Held: networks.held, Answered: networks.answered})
	builds := &builds{opts: o, log: log, table: t, snaps: snaps, lost: lost}
	launcher.builds = builds
	archive := &archive{builds: builds, opts: o, log: log, table: t, snaps: snaps, journal: j,
		records: records, launcher: launcher, resolver: resolver, lost: lost}
	lost.records = records

	// These parts need each other: an ending sandbox makes room for a new one, and a new one may
	// need another to end.
	gates := &gates{opts: o, table: t}
	nursery := &nursery{opts: o, log: log, table: t, records: records, launcher: launcher, greeter: greeter, gates: gates}
	ripener := &ripener{opts: o, log: log, table: t, snaps: snaps, journal: j, roots: roots, records: records,
		launcher: launcher, greeter: greeter, gates: gates, archive: archive, nursery: nursery, resolver: resolver}
	pool := warm.New(o.Warm, nursery, log)
	goldens := golden.New(ripener)
	templates := &templates{opts: o, table: t, resolver: resolver, gates: gates, warm: pool, goldens: goldens}
	lifecycle := &lifecycle{opts: o, log: log, table: t, rules: rules, journal: j, records: records, launcher: launcher,
		greeter: greeter, networks: networks, archive: archive, expiry: newExpiry()}
	creator := &creator{opts: o, log: log, table: t, snaps: snaps, rules: rules, journal: j, roots: roots, records: records,
		templates: templates, resolver: resolver, launcher: launcher, greeter: greeter, networks: networks, gates: gates, archive: archive,
		lifecycle: lifecycle, ripener: ripener, warm: pool, goldens: goldens}
	moments := &moments{opts: o, log: log, table: t, snaps: snaps, rules: rules, journal: j, roots: roots, records: records,
		templates: templates, resolver: resolver, launcher: launcher, greeter: greeter, networks: networks, gates: gates, archive: archive,
		lifecycle: lifecycle, creator: creator}
	lifecycle.moments = moments
	s.labels, s.pastFiles = labels{lifecycle}, pastFiles{archive}
	s.tether = &Tether{table: t, log: log}
	moments.tether = s.tether
	nursery.creator, nursery.warm = creator, pool
	ripener.warm, ripener.goldens = pool, goldens
	gates.open(pool)

	s.table, s.journal, s.records, s.roots, s.greeter, s.networks = t, j, records, roots, greeter, networks
	s.gates, s.ripener, s.warm, s.goldens, s.templates = gates, ripener, pool, goldens, templates
	s.archive, s.lifecycle, s.creator, s.moments = archive, lifecycle, creator, moments
	s.meter = &meter{opts: o, log: log, table: t, census: j.census}
	s.autopilot = &autopilot{table: t, journal: j, archive: archive, moments: moments, meter: s.meter}
	s.recovery = &recovery{opts: o, log: log, table: t, snaps: snaps, journal: j, archive: archive, greeter: greeter,
		networks: networks, lifecycle: lifecycle, moments: moments, nursery: nursery, lost: lost}
	s.lost = lost
	s.movement = &Movement{opts: o, log: log, table: t, snaps: snaps, journal: j, records: records, roots: roots,
		templates: templates, launcher: launcher, archive: archive, lifecycle: lifecycle, recovery: s.recovery,
		creator: creator, builds: builds, sums: &imageSums{file: filepath.Join(o.Dir, imageSumsFile)}}
	lost.adopt = func(ctx context.Context, rec state.Record) { s.recovery.recoverPaused(ctx, rec, nil) }
	return s
}
