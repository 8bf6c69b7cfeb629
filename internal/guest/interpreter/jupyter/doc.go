// Package jupyter speaks Jupyter's messaging protocol (version 5) to one kernel, as its client:
// messages, their signatures, the file that tells a kernel where to listen, and the execution of
// code with its outputs in order. It does not start kernels; package kernel does.
// See https://jupyter-client.readthedocs.io/en/stable/messaging.html.
//
// # Flow
//
// [Connect] opens the kernel's sockets and waits until the kernel answers and its outputs arrive.
// [Client.Execute] runs one cell and hands every output to a handler. It returns after the kernel
// has replied and has said that it is idle. While a handler blocks, no more output is read, so the
// caller must keep the kernel from producing more (package kernel stops its process).
//
// # Threats
//
// The kernel runs a stranger's code, which can write anything to the sockets. Lengths are bounded
// (package zmtp), JSON is decoded into known fields, and a message without a good signature is
// dropped: other users of the sandbox could have written it. Text that a program prints can't forge
// a message, because it arrives as the content of one.
package jupyter
