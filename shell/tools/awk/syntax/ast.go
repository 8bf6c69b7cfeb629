package syntax

// Program is a whole program.
type Program struct {
	Units []string // names of its pieces, "" for the command line
	Rules []*Rule
	Funcs []*Func
}

// RuleKind says when a rule's action runs.
type RuleKind int

// The kinds of rules.
const (
	RuleMain RuleKind = iota
	RuleBegin
	RuleEnd
	RuleBeginFile
	RuleEndFile
)

// Rule is a pattern with its action.
type Rule struct {
	Kind    RuleKind
	Pattern Expr // nil: every record
	Until   Expr // the end of a range, or nil
	Body    []Stmt
	Print   bool // without an action: print the record
	Pos     Pos
}

// Func is a function that the program defines.
type Func struct {
	Name   string
	Params []string
	Body   []Stmt
	Pos    Pos
}

// Expr is an expression.
type Expr interface{ expr() }

// Scope says where a variable lives.
type Scope int

// The scopes. A name is unresolved until package resolve has seen it.
const (
	Unresolved Scope = iota
	Global
	Local
)

// The expressions.
type (
	// Num is a number. Text is its source.
	Num struct {
		Value float64
	}
	// Str is a string, without its quotes and escapes.
	Str struct {
		Value string
	}
	// Regex is /Source/, or @/Source/ when it is Strong.
	Regex struct {
		Source string
		Strong bool
		Pos    Pos
	}
	// Name is a variable or an array.
	Name struct {
		Ident string
		Scope Scope
		Slot  int
		Pos   Pos
	}
	// Index is an element; Array is a Name or an Index.
	Index struct {
		Array Expr
		Subs  []Expr
		Pos   Pos
	}
	// Field is $X.
	Field struct {
		X   Expr
		Pos Pos
	}
	// Group is an expression in parentheses.
	Group struct {
		X Expr
	}
	// List is a list of expressions in parentheses, for print.
	List struct {
		Items []Expr
	}
	// Unary is an operator before its operand.
	Unary struct {
		Op UnaryOp
		X  Expr
	}
	// Binary is an operator between its operands.
	Binary struct {
		Op   BinaryOp
		L, R Expr
		Pos  Pos
	}
	// Concat is the concatenation of two or more strings.
	Concat struct {
		Parts []Expr
	}
	// Cond is If ? Then : Else.
	Cond struct {
		If, Then, Else Expr
	}
	// In tests whether an array has an element.
	In struct {
		Subs  []Expr
		Array Expr
		Pos   Pos
	}
	// Assign stores R in L. With an operator it stores the result of L Op R.
	Assign struct {
		Op   BinaryOp // OpNone for a plain assignment
		L, R Expr
		Pos  Pos
	}
	// IncDec is ++ or -- before or after L.
	IncDec struct {
		L     Expr
		Delta float64
		Post  bool
		Pos   Pos
	}
	// Call calls a function that the program defines.
	Call struct {
		Name string
		Func int // its index, set by package resolve
		Args []Expr
		Pos  Pos
	}
	// CallBuiltin calls a built-in function.
	CallBuiltin struct {
		Builtin *Builtin
		Args    []Expr
		Pos     Pos
	}
	// Indirect calls the function whose name is a variable's value.
	Indirect struct {
		Fn   *Name
		Args []Expr
		Pos  Pos
	}
	// Getline reads a record from Source into Target, or into $0 without a Target.
	Getline struct {
		From   GetlineFrom
		Source Expr
		Target Expr
		Pos    Pos
	}
)

// GetlineFrom says from where a getline reads.
type GetlineFrom int

// What a getline reads.
const (
	FromInput GetlineFrom = iota
	FromFile
	FromCommand
	FromBoth // a two-way pipe
)

// UnaryOp is a prefix operator.
type UnaryOp int

// The prefix operators.
const (
	OpNot UnaryOp = iota
	OpNegate
	OpPlus
)

// BinaryOp is an infix operator.
type BinaryOp int

// The infix operators.
const (
	OpNone BinaryOp = iota
	OpAdd
	OpSub
	OpMul
	OpDiv
	OpMod
	OpPow
	OpLess
	OpLessEqual
	OpEqual
	OpNotEqual
	OpGreater
	OpGreaterEqual
	OpMatch
	OpNoMatch
	OpAnd
	OpOr
)

func (*Num) expr()         {}
func (*Str) expr()         {}
func (*Regex) expr()       {}
func (*Name) expr()        {}
func (*Index) expr()       {}
func (*Field) expr()       {}
func (*Group) expr()       {}
func (*List) expr()        {}
func (*Unary) expr()       {}
func (*Binary) expr()      {}
func (*Concat) expr()      {}
func (*Cond) expr()        {}
func (*In) expr()          {}
func (*Assign) expr()      {}
func (*IncDec) expr()      {}
func (*Call) expr()        {}
func (*CallBuiltin) expr() {}
func (*Indirect) expr()    {}
func (*Getline) expr()     {}

// Stmt is a statement.
type Stmt interface{ stmt() }

// Redirect says where print writes to.
type Redirect int

// Where print writes.
const (
	ToOutput Redirect = iota
	ToFile
	ToAppend
	ToCommand
	ToBoth // a two-way pipe
)

// The statements.
type (
	// ExprStmt evaluates an expression.
	ExprStmt struct {
		X   Expr
		Pos Pos
	}
	// Print is print or printf.
	Print struct {
		Format bool
		Args   []Expr
		To     Redirect
		Dest   Expr
		Pos    Pos
	}
	// If is a choice.
	If struct {
		Cond       Expr
		Then, Else []Stmt
		Pos        Pos
	}
	// While is a loop. For a do, the condition comes last.
	While struct {
		Cond Expr
		Body []Stmt
		Do   bool
		Pos  Pos
	}
	// For is a loop with three parts. Each part may be nil.
	For struct {
		Init Stmt
		Cond Expr
		Post Stmt
		Body []Stmt
		Pos  Pos
	}
	// ForIn is a loop over the subscripts of an array.
	ForIn struct {
		Var   *Name
		Array Expr
		Body  []Stmt
		Pos   Pos
	}
	// Block is statements in braces.
	Block struct {
		Body []Stmt
	}
	// Switch runs the case that matches.
	Switch struct {
		X     Expr
		Cases []*Case
		Pos   Pos
	}
	// Delete removes an element, or all elements when Subs is nil.
	Delete struct {
		Array Expr
		Subs  []Expr
		Pos   Pos
	}
	// Exit ends the program, and Return ends a function. X may be nil.
	Exit struct {
		X   Expr
		Pos Pos
	}
	// Return ends a function.
	Return struct {
		X   Expr
		Pos Pos
	}
	// Jump is break, continue, next or nextfile.
	Jump struct {
		Kind JumpKind
		Pos  Pos
	}
)

// Case is a case of a switch. X is a Num, Str or Regex, or nil for the default.
type Case struct {
	X    Expr
	Body []Stmt
}

// JumpKind is the kind of a jump.
type JumpKind int

// The jumps.
const (
	Break JumpKind = iota
	Continue
	Next
	NextFile
)

func (*ExprStmt) stmt() {}
func (*Print) stmt()    {}
func (*If) stmt()       {}
func (*While) stmt()    {}
func (*For) stmt()      {}
func (*ForIn) stmt()    {}
func (*Block) stmt()    {}
func (*Switch) stmt()   {}
func (*Delete) stmt()   {}
func (*Exit) stmt()     {}
func (*Return) stmt()   {}
func (*Jump) stmt()     {}
