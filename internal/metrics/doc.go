// Package metrics holds the daemon's figures for Prometheus.
//
// # Families
//
// Every metric is a [Family] in one table, with its name, its labels and its meaning. The page
// docs/metrics.md is the same table for people. Nothing outside of the table can be exposed.
//
// Figures come in two ways. What happens to a request is counted when it happens ([Requests],
// [Operations]). Everything else is the state of some part. A part counts for itself, and [Metrics]
// asks for the state at each scrape ([Metrics.Read]). So a daemon that nobody scrapes pays nothing
// for it.
//
// # Threat
//
// Somebody makes the daemon keep and send ever more series: by unknown paths, methods or calls, or
// by ever more projects and templates. So no label holds a text that a client chose, with two
// exceptions: names of projects and of templates, which an owner chose. Of these, each scrape shows
// the [MostNames] largest, and the sum of the others under [Other].
//
// A name may hold quotes, line ends or bytes that are not UTF-8. The encoder escapes what can be
// escaped, and [Scrape.Put] replaces the rest.
package metrics
