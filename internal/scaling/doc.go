// Package scaling is a model of many machines that run sandboxes. It has the measured costs of a
// sandbox on one machine, and a simulation of a thousand machines. There, sandboxes are created,
// paused and needed again, and a policy decides where.
//
// # What is simulated
//
// Time is continuous, events are in a heap, and the same seed gives the same run to the last digit.
// A node has processors, memory, a cache of templates, and paused sandboxes on its disk. Starts and
// the sandboxes' own work share the processors. A node keeps sandboxes ready, as many as package
// pool says: this is the pool's real code, on simulated time. Placers of package
// placement place each session, by the code that places real sandboxes. They know the nodes' reports
// of some time ago, and their own placements since.
//
// # What is not
//
// Disks and networks have a speed and no queue. A node that fails is silent at once. A start takes its mean time,
// divided by the free part of the processors. docs/SCALING.md compares the result with real runs.
package scaling
