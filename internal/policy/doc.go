// Package policy judges the traffic on a sandbox's wire. It does no input or output, except [Load],
// which reads a file that a person names. The wire says what it knows of a connection, and the
// policy answers. docs/policy.md describes the language.
//
// # The story
//
// [Parse] reads a policy file. [Compile] makes a [Policy] from a [carrel.Network]. A Policy is
// immutable, safe for concurrent use and fast. The wire asks in steps, and knows more at each step:
//
//  1. [Policy.JudgeName] when the sandbox asks for a name: can any connection to it
//     be allowed? If not, the name does not exist.
//  2. [Policy.Judge] at the first packet of a connection. Only the address is known, and
//     the names that this sandbox got it for. The answer may be final, or Inspect: the
//     first bytes must decide.
//  3. [Policy.Judge] again with the content of the first bytes: TLS with a server name,
//     HTTP with a host, or something else. The answer may be Terminate: TLS must be opened.
//  4. [Policy.Judge] for each visible request of HTTP.
//  5. [Policy.JudgeTarget] for the address that an allowed name has when the host
//     itself looks it up. No name may lead to an address that is out of reach.
//
// Every answer names the rule that gave it. A refusal also says why, and what to ask for. The same
// words go to the audit log, to the agent inside and to "carrel policy test".
package policy
