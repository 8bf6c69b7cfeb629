// Empty: with a file in assembly the compiler accepts functions without a body, which go:linkname declares.
