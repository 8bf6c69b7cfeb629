#include "textflag.h"

// func cloneOnto(args *cloneArgs, size uintptr, o *order) (result uintptr)
//
// The kernel gives both processes all registers but R0 as they were. So the child finds its order in R19. Its RSP is the
// end of its own stack, and there it stores the argument of become, above the place of a link register.
TEXT ·cloneOnto(SB),NOSPLIT,$16-32
	MOVD	o+16(FP), R19
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	$435, R8	// clone3
	SVC
	CBZ	R0, child
	MOVD	R0, result+24(FP)
	RET
child:
	MOVD	R19, 8(RSP)
	CALL	·become(SB)
	UNDEF	// become does not return
