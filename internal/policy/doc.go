// Package policy judges what may pass a sandbox's wire. It does no input or output, but
// for [Load], which reads a file that a person names: the wire tells it what it knows of
// a connection, and it says what is to be done. docs/policy.md tells the language.
//
// # The story
//
// [Parse] reads a policy file, [Compile] makes a [carrel.Network] ready to judge: a
// [Policy] is immutable, safe for concurrent use and cheap to ask. The wire asks in steps,
// each with more knowledge:
//
//  1. [Policy.JudgeName] when the sandbox asks for a name: may anything at all be done
//     with it? If not, the name does not exist.
//  2. [Policy.Judge] at the first packet of a connection, when only the address is known,
//     and the names that this sandbox got it for. The answer may be final, or Inspect:
//     nobody can say before the first bytes are read.
//  3. [Policy.Judge] again with what the first bytes said: TLS with a server name, HTTP
//     with a host, or something else. The answer may be Terminate: TLS is to be opened.
//  4. [Policy.Judge] for each request of HTTP that is seen.
//  5. [Policy.JudgeTarget] for the address that an allowed name has when the host
//     itself looks it up: no name leads to where no sandbox may go.
//
// Every answer names the rule that gave it, and a refusal says why and what to ask
// for: the same words go to the audit log, to the agent inside and to "carrel policy
// test".
package policy
