// Package kernel starts the processes that run cells of code, and keeps the state of each between
// its cells. A [Kernel] is one such process. [Finder] knows which languages the image has:
//
//   - python: ipykernel if the image has it, otherwise a small runner of our own on plain python3
//   - javascript and typescript: the image's node, with a runner of our own
//   - bash: the image's bash
//   - java: a Jupyter kernel for it if the image has one, otherwise the image's java, with a runner of
//     our own on JShell
//   - any other language: a Jupyter kernel that the image has a kernelspec for
//
// The runners are the files in scripts/. They get cells on descriptor 3 and write what happens to
// descriptor 4, one JSON object a line. What a program prints goes to descriptors 1 and 2, so it
// can't be taken for a line of the runner.
//
// # Lifecycle
//
// Start returns a Kernel that is ready. Run runs one cell; calls must not overlap. If the context
// of Run ends, the cell may still be running: call Interrupt, and then Settle, which waits for the
// cell's end. Close kills the process and all of its group, and may be called in any state. Done is
// closed when the process has ended by itself or by Close, and Reason then says why.
//
// # Output is never lost and never piles up
//
// A [Sink] may block until the context of Run ends. While it does, no output is read, and a process that fills its pipe waits. A
// Jupyter kernel would queue its output in its own memory, so its process is stopped (SIGSTOP)
// until the sink has taken the event.
//
// # Threats
//
// The code of a cell is a stranger's. It has the rights of this process's user already, so it gains
// nothing by an attack on its own runner. It must not be able to hold up or break the interpreter,
// which serves other contexts: every line and message has a bounded length, every wait ends with
// the process, and a process that ignores an interrupt is killed.
package kernel
