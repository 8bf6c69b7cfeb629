package kernel

import "golang.org/x/sys/unix"

// bytesWaiting asks how many bytes a pipe holds.
const bytesWaiting = unix.TIOCINQ
