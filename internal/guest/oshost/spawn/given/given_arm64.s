#include "textflag.h"

// func getOpenFiles(l *Limit)
TEXT ·getOpenFiles(SB),NOSPLIT,$0-8
	MOVD	$7, R0	// RLIMIT_NOFILE
	MOVD	l+0(FP), R1
	MOVD	$163, R8	// getrlimit
	SVC
	RET
