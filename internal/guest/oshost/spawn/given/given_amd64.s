#include "textflag.h"

// func getOpenFiles(l *Limit)
TEXT ·getOpenFiles(SB),NOSPLIT,$0-8
	MOVQ	$7, DI	// RLIMIT_NOFILE
	MOVQ	l+0(FP), SI
	MOVQ	$97, AX	// getrlimit
	SYSCALL
	RET
