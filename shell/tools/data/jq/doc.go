// Package jq is the language of jq: JSON values whose keys keep their order, a reader and a writer of JSON, and an
// evaluator. The grammar is parsed by github.com/itchyny/gojq; its evaluator is not used, because its objects are Go maps and
// forget the order of keys, which every user of jq sees.
//
// # How programs run
//
// [Compile] turns a program into functions that pass each result to a continuation, so that nothing is computed that nobody
// asks for. The same functions follow paths when one is asked for: path(f), assignments and del need no second evaluator.
//
// # Threats
//
// Programs and inputs are hostile. Every function that runs pays a step of a [Budget], values of more than a kilobyte pay
// memory until the garbage collector has taken them, and recursion, nesting of values and length of programs are bounded.
package jq
