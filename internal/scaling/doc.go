// Package scaling is a model of many machines that run sandboxes: what a sandbox costs
// one of them, measured, and a simulation of a thousand, in which sandboxes are
// created, paused and wanted again, and something has to decide where.
//
// # What is simulated
//
// Time is continuous, events are in a heap, and the same seed gives the same run to
// the last digit. A node has processors, of which starts and the sandboxes' own work
// take their part, memory, a cache of templates, paused sandboxes on its disk, and
// sandboxes kept ready, as many as package pool says: its real code, on simulated
// time. A [Policy] places each session, knowing of the nodes what they said some time
// ago and what it has done itself since.
//
// # What is not
//
// Disks and networks have a speed and no queue. Nodes do not fail. A start takes its
// mean time, divided by what is left of the processors. docs/SCALING.md compares the
// outcome with real runs.
package scaling
