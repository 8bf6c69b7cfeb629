// Package carrel is the vocabulary of Carrel, the computer an AI agent runs on.
//
// # Words
//
// A sandbox is one agent's computer: files, processes, ports, a policy, an
// identity and a timeline. A tier says how strong the wall around it is: [Sim]
// never touches an operating system, [NS] uses Linux primitives on the host
// kernel, [GVisor] puts a second kernel in software between the sandbox and the
// host, and [MicroVM] gives it a kernel of its own. A template is an immutable
// root filesystem from which sandboxes are made. The guest is the small agent
// process inside every sandbox that runs commands and touches files.
//
// # The story
//
// A [Service] creates sandboxes, finds them and ends them. There are two, and
// they satisfy the same interface: package client talks to a daemon over HTTP,
// and [Open] runs the whole service inside this very process.
//
//	svc, err := carrel.Open(ctx, carrel.Config{Tier: carrel.Sim})
//	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: 5 * time.Minute})
//	c, err := svc.Computer(ctx, sb.ID)
//	res, err := c.Run(ctx, carrel.Command{Shell: "echo hello"})
//	err = svc.Kill(ctx, sb.ID)
//
// A [Computer] is the inside of one running sandbox: its processes, its [Files]
// and its ports. Everything that happens to sandboxes is also an [Event] in one
// ordered stream.
//
// # Errors
//
// Every error that leaves this API is, or wraps, an [*Error]. Branch on its
// [Kind] with [KindOf] or errors.Is(err, carrel.NotFound); never on its text.
// Hint says what a person can do about it.
//
// This package imports the standard library only.
package carrel
