// Package interpreter is the code interpreter: it runs cells of code in kept contexts, and streams
// what they print, show and return. It serves the protocol of E2B's code interpreter on port 49999,
// so that the unmodified packages @e2b/code-interpreter and e2b-code-interpreter work.
//
// # Terms
//
// A context is a language, a working directory and the state that cells leave: variables, imports,
// functions. It has one kernel (package kernel), which starts with the first cell. Each language
// has a default context, for cells that name none. Cells of one context run one after the other, in
// the order of their requests; contexts run beside each other.
//
// # Life of a cell
//
// A request is checked first, and refused with a status. After that its answer is 200, one JSON
// object a line, until end_of_execution; a line "keepalive" comes when nothing else does. If the
// client leaves, the cell is interrupted. A cell that ignores the interrupt loses its kernel, and
// with it the context's state. A kernel that dies is an error of its cell; the next cell gets a
// fresh one.
//
// # Threats
//
// Clients are strangers to each other only across sandboxes: whoever may run a cell may run every
// cell. The gateway checks the traffic token for all of this port, and a cell needs the sandbox's
// access token if the sandbox has one ([Config].Environ). Context IDs are random all the same. A
// web page that a user visits can't make a browser send a cell without asking first, because
// requests must be of type application/json. Code that is hostile to this server is bounded: one
// event is in memory at a time for each running cell, a slow client slows its cell down, and
// contexts and waiting cells are limited in number.
package interpreter
