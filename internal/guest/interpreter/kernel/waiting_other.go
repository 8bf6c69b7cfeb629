//go:build !linux

package kernel

// bytesWaiting asks how many bytes a pipe holds, on BSDs.
const bytesWaiting = 0x4004667f
