package main

// int80 makes a system call through the 32-bit entry of a 64-bit kernel, with that architecture's
// numbers.
func int80(n, a, b, c int) int
