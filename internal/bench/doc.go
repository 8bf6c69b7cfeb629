// Package bench measures Carrel as its users meet it: whole processes, the real
// daemon with its API key on and its records durable, the machine and its load named
// beside the figures.
//
// A measurement takes its samples after a warm-up and reports median, 95th and 99th
// percentile. What is compared is measured in turns, sample by sample ([race]): a busy
// second of the machine then meets every side, and the ratio of the medians holds where
// the times do not. The peers are fetched where that can be done and left out, with a
// word why, where not.
//
// Results are rows and points. Rows have a key that stays the same from version to
// version, so that an older file of them can be compared ([Options.Compare]) and the
// project's targets be looked up; points are latency and memory against a count, from which
// the plots are drawn. A missed target is marked and fails nothing, since a shared machine
// misses some on a bad day; the smoke form ([Options.Smoke]) does fail, on ratios alone.
package bench
