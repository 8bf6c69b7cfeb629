// Package jq implements the language of jq. It has JSON values whose keys keep their order, a
// reader and a writer of JSON, and an evaluator. The module github.com/itchyny/gojq parses the
// grammar. Its evaluator is not used: its objects are Go maps, which lose the order of keys, and
// every user of jq sees that order.
//
// # How programs run
//
// [Compile] turns a program into functions that pass each result to a continuation. So a result is
// computed only when it is needed. The same functions also follow paths when the caller needs them:
// path(f), assignments and del need no second evaluator.
//
// # Threats
//
// Programs and inputs are hostile. Every function that runs pays a step of a [Budget]. Values of
// more than a kilobyte pay for memory until the garbage collector frees them. Recursion, nesting of
// values and length of programs are limited.
package jq
