// Package codemode runs scripts that call granted tools, and judges every call by rules before it is made.
//
// A [Tool] is a function with a name, a JSON schema and JSON in and out; [FromMCP] makes tools of an MCP server's, and
// [Programs] makes programs of a simulated sandbox of them. A script calls them as tools.name({...}) or, where names have
// slashes, tools.files.read({...}). [Rules] say what may be called with what: a tool that no rule allows is denied.
//
// # Threats
//
// The script is hostile: it runs in package quickjs, with nothing but its tools, and bounds on steps, memory, output and
// time. What a script passes is judged as JSON, after it was read, and the tool gets that same JSON: there is no second
// reading. Numbers are compared as the float64 that they are in the script; a tool that reads a number as another one
// (an integer beyond 2^53) should be given it as a string, which rules can match with a pattern. Object keys that occur twice
// can't be: the JSON is the interpreter's own.
//
// # Rules
//
// Rules are a JSON object; unknown fields are refused:
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
// A call is allowed by the first rule whose methods match its name and whose params all hold. In methods a * stands for
// anything without a slash, ** for anything. A rule without params takes any arguments; with params, arguments that it does
// not name are refused unless "others" is true. A name in params may be a path ("owner.id").
//
// A constraint is an object, and all that it says must hold: type (string, number, integer, boolean, object, array, null);
// eq, ne, lt, le, gt, ge (numbers, or strings by bytes; eq and ne any value); in, not_in (lists of values); starts_with,
// ends_with, contains, not_contains, pattern (RE2, the whole string); min_length, max_length (characters, or elements, or
// keys); exists (false: it may not be there; without it or with true, it must); optional (it may be missing); each (for every
// element of an array); and, or (lists of constraints), not; total (the sum over all calls that this rule has allowed).
package codemode
