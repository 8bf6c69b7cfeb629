// Package codemode runs scripts that call granted tools. Rules judge every call before it is made.
//
// A [Tool] is a function with a name, a JSON schema, and JSON as input and output. [FromMCP] makes
// tools from those of an MCP server. [Programs] makes programs of a simulated sandbox from tools. A
// script calls them as tools.name({...}), or as tools.files.read({...}) where names have slashes.
// [Rules] say which tools may be called with which arguments. A tool that no rule allows is denied.
//
// # Threats
//
// The script is hostile. It runs in package quickjs with nothing but its tools, and with limits of
// steps, memory, output and time. The rules judge the arguments as JSON, after parsing, and the
// tool gets the same JSON: nothing parses it a second time in between. Numbers are compared as
// float64, as in the script. A tool that needs an integer beyond 2^53 should take it as a string,
// which rules can match with a pattern. An object key can't occur twice, because the interpreter
// writes the JSON.
//
// # Rules
//
// Rules are a JSON object. Unknown fields are refused:
//
//	{
//	  "max_calls": 100,
//	  "allow": [
//	    {"methods": ["files/**"], "max_calls": 20,
//	     "params": {"path": {"type": "string", "starts_with": "/home/user/", "not_contains": ".."},
//	                "size": {"type": "integer", "ge": 0, "le": 4096, "total": 65536}}},
//	    {"methods": ["clock"]}
//	  ]
//	}
//
// The first rule whose methods match the name and whose params all hold allows a call. In methods,
// * matches anything without a slash, and ** matches anything. A rule without params accepts any
// arguments. A rule with params refuses arguments that it does not name, unless "others" is true. A
// name in params may be a path ("owner.id").
//
// A constraint is an object, and all its fields must hold: type (string, number, integer, boolean,
// object, array, null); eq, ne, lt, le, gt, ge (numbers, or strings by bytes; eq and ne any value);
// in, not_in (lists of values); starts_with, ends_with, contains, not_contains, pattern (RE2, the
// whole string); min_length, max_length (characters, or elements, or keys); exists (false: it must
// be missing; true, or no exists: it must be there); optional (it may be missing); each (for every
// element of an array); and, or (lists of constraints), not; total (the sum over all calls that
// this rule has allowed).
package codemode
