// Package bench measures Carrel as its users see it: whole processes, the real daemon with its API
// key on and durable records. The machine and its load are printed with the figures.
//
// A measurement takes its samples after a warm-up and reports median, 95th and 99th percentile.
// Compared sides are measured in turns, sample by sample ([race]). A busy second of the machine
// then affects every side, and the ratio of the medians is reliable even if the times are not.
// Peers are downloaded if possible; otherwise they are left out, with a reason.
//
// Results are rows and points. A row has a key that stays the same between versions, so that an
// older file can be compared ([Options.Compare]) and the project's targets can be looked up. Points
// are latency and memory against a count; the plots are drawn from them. A missed target is marked
// and fails nothing, because a shared machine misses some on a bad day. The smoke form
// ([Options.Smoke]) does fail, on ratios alone.
package bench
