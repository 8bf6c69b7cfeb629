package calc

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/tool"
)

// ample is more steps than any calculation of these tests needs.
const ample = 1 << 40

// runBC runs a program with our bc -l.
func runBC(t testing.TB, steps int, program string) (out, errs string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = bc(&tool.Call{Host: &budget{steps: steps}, Ctx: context.Background(), Name: "bc",
		Args: []string{"-l"}, In: strings.NewReader(program), Out: &stdout, Err: &stderr})
	return stdout.String(), stderr.String(), code
}

// TestLibraryIsLikeFunctions checks that the functions of -l behave like other functions of bc.
func TestLibraryIsLikeFunctions(t *testing.T) {
	for _, test := range []struct{ name, program, want string }{
		{"scale", "scale=5;e(1);s(1);c(1);a(1);l(2);j(1,1)", "2.71828\n.84147\n.54030\n.78539\n.69314\n.44005\n"},
		{"scale 0", "scale=0;e(1);s(1);c(1);a(2);l(8);j(0,0)", "2\n0\n0\n1\n2\n1\n"},
		{"exact", "e(0);s(0);c(0);a(0);l(1.00);j(0,0);j(3,0)", "1.00000000000000000000\n0\n1.00000000000000000000\n0\n0\n1.00000000000000000000\n0\n"},
		{"zeros have the scale", "scale(s(0));scale(l(1));scale=3;scale(j(3,0))", "20\n20\n3\n"},
		{"no logarithm", "scale=3;l(0);l(-2.5)", "-999.000\n-999.000\n"},
		{"redefined", "define e(x){return(l(x)+1)}\ne(2);s(1)", "1.69314718055994530941\n.84147098480789650665\n"},
		{"other parameters", "define j(n){return(7)}\nj(1)", "7\n"},
		{"bases stay", "ibase=16;e(A);ibase", "22026.46579480671651695790\n16\n"},
		{"obase", "obase=16;s(1)", ".D76AA47848677020B\n"},
		{"variables stay", "b=3;e(1);b;n;v", "2.71828182845904523536\n3\n0\n0\n"},
		{"whole order", "scale=5;j(1.5,1);j(-1.9,1);j(-2,1);j(3,-3)", ".44005\n-.44005\n.11490\n-.30906\n"},
		{"far off", "a(10^30);e(-100);j(10000,1)", "1.57079632679489661923\n0\n0\n"},
		{"last", "scale=3;e(1.23456);last", "3.436\n3.436\n"},
		{"nested", "scale=30;e(l(7))", "6.999999999999999999999999999998\n"},
	} {
		if got, errs, _ := runBC(t, ample, test.program+"\n"); got != test.want || errs != "" {
			t.Errorf("%s: got %q %s, want %q", test.name, got, errs, test.want)
		}
	}
	for program, want := range map[string]string{"e(1,2)": "Parameter number mismatch", "j(1)": "Parameter number mismatch",
		"z(1)": "Function z not defined.", "e(10^9)": "Number is too large"} {
		if got, errs, _ := runBC(t, ample, program+"\n"); got != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: got %q and %q, want %q", program, got, errs, want)
		}
	}
}

// TestLibraryBudget checks that long calculations end with the budget.
func TestLibraryBudget(t *testing.T) {
	for _, call := range []string{"scale=100000;e(1)", "scale=100000;l(3)", "scale=100000;s(1)", "scale=100000;a(.3)",
		"scale=100000;j(3,1)", "s(10^300000)", "j(0,1000000)", "e(1000000)", "scale=90000;x=10^-90000;scale=5;c(x)"} {
		out, _, code := runBC(t, 4<<20, call+"\n")
		if out != "" || code == 0 {
			t.Errorf("%s: status %d, output of %d bytes", call, code, len(out))
		}
	}
}

// reference computes a function in a different way: with plain Taylor series in binary floating
// point, without reduction of the argument, and with far more digits than needed.
func reference(name byte, order int, x *big.Rat, scale int) string {
	const precision = 700
	real := func() *big.Float { return new(big.Float).SetPrec(precision) }
	arg := real().SetRat(x)
	// sum returns first + first*ratio(1) + first*ratio(1)*ratio(2)…
	sum := func(first *big.Float, ratio func(k int64) *big.Float) *big.Float {
		total, term := real().Set(first), real().Set(first)
		for k := int64(1); term.Sign() != 0 && term.MantExp(nil) > -precision; k++ {
			term.Mul(term, ratio(k))
			total.Add(total, term)
		}
		return total
	}
	over := func(a *big.Float, n int64) *big.Float { return real().Quo(a, real().SetInt64(n)) }
	exp := func(a *big.Float) *big.Float {
		return sum(real().SetInt64(1), func(k int64) *big.Float { return over(a, k) })
	}
	square := real().Mul(arg, arg)
	negated := real().Neg(square)
	var v *big.Float
	switch name {
	case 'e':
		v = exp(arg)
	case 's':
		v = sum(arg, func(k int64) *big.Float { return over(negated, 2*k*(2*k+1)) })
	case 'c':
		v = sum(real().SetInt64(1), func(k int64) *big.Float { return over(negated, 2*k*(2*k-1)) })
	case 'l': // Newton's method: the step x/e^y - 1 is 0 where e^y = x
		f, _ := arg.Float64()
		v = real().SetInt64(int64(big.NewFloat(f).MantExp(nil)))
		for range 600 {
			e := exp(real().Neg(v))
			step := real().Sub(e.Mul(e, arg), real().SetInt64(1))
			v.Add(v, step)
			if step.Sign() == 0 || step.MantExp(nil) < -precision*3/4 {
				break
			}
		}
	case 'a': // Euler's series, which converges for any x: its terms shrink by x²/(1+x²)
		one := real().SetInt64(1)
		z := real().Quo(square, real().Add(one, square))
		v = sum(real().Quo(arg, real().Add(one, square)), func(k int64) *big.Float {
			r := real().Mul(z, real().SetInt64(2*k))
			return r.Quo(r, real().SetInt64(2*k+1))
		})
	case 'j':
		first := real().SetInt64(1)
		for i := 1; i <= order; i++ {
			first.Mul(first, over(arg, int64(2*i)))
		}
		v = sum(first, func(k int64) *big.Float { return over(negated, 4*k*(k+int64(order))) })
	}
	cut, _ := v.Mul(v, real().SetInt(pow10(scale))).Int(nil)
	return num{cut, scale}.text(10)
}

// randomCall returns a call of a function with an argument of moderate size.
func randomCall(r *rand.Rand) (name byte, order int, x num, scale int) {
	name = "eslcaj"[r.IntN(6)]
	digits := r.IntN(12)
	x = num{big.NewInt(r.Int64N(40*pow10(digits).Int64()) - 20*pow10(digits).Int64()), digits}
	if name == 'l' || name == 'a' { // Euler's series is slow for large arguments
		x = num{big.NewInt(1 + r.Int64N(8*pow10(digits).Int64())), digits}
	}
	return name, r.IntN(9), x, r.IntN(60)
}

func callText(name byte, order int, x num) string {
	if name == 'j' {
		return fmt.Sprintf("j(%d,%s)", order, x.text(10))
	}
	return fmt.Sprintf("%c(%s)", name, x.text(10))
}

// TestLibraryDigits compares random calls with a different computation that has many more digits.
// Each digit must be right.
func TestLibraryDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 1))
	for range 300 {
		name, order, x, scale := randomCall(r)
		program := fmt.Sprintf("scale=%d;%s\n", scale, callText(name, order, x))
		got, errs, _ := runBC(t, ample, "scale=0;"+program)
		got = strings.ReplaceAll(strings.TrimSpace(got), "\\\n", "")
		exact := new(big.Rat).SetFrac(x.n, pow10(x.scale))
		if want := reference(name, order, exact, scale); got != want || errs != "" {
			t.Errorf("%s: got %s %s, want %s", program, got, errs, want)
		}
	}
}

// TestLibraryOwnPrecision compares results with the first digits of longer results. It is for
// arguments for which the reference is slow.
func TestLibraryOwnPrecision(t *testing.T) {
	m := newMachine(&tool.Call{Host: &budget{steps: ample}, Ctx: context.Background()}, nil)
	number := func(s string) num {
		n := parseNum(strings.TrimPrefix(s, "-"), 10)
		if s[0] == '-' {
			return n.neg()
		}
		return n
	}
	zeros := strings.Repeat("0", 30)
	for _, call := range [][]string{{"e", "300.5"}, {"e", "-300.5"}, {"e", "." + zeros + "1"}, {"l", "1" + zeros},
		{"l", "." + zeros + "1"}, {"s", "1" + zeros}, {"c", "-1" + zeros}, {"c", "." + zeros + "1"}, {"a", "1" + zeros},
		{"a", "-.0000001"}, {"j", "0", "150"}, {"j", "40", "60.5"}, {"s", "3.14159265358979323846"}} {
		var args []num
		for _, a := range call[1:] {
			args = append(args, number(a))
		}
		compute := mathLibrary[call[0]].value
		m.scale = 90
		long, err := compute(m, args)
		if err != nil {
			t.Fatal(call, err)
		}
		for _, m.scale = range []int{0, 1, 19, 20, 21, 40, 60} {
			got, err := compute(m, args)
			if want := long.rescale(m.scale); err != nil || got.scale != m.scale || got.cmp(want) != 0 {
				t.Errorf("scale=%d;%s: got %s %v, want %s", m.scale, call, got.text(10), err, want.text(10))
			}
		}
	}
}

// TestLibraryLikeRealBC compares random calls with the real bc, whose last digits are not always
// right. A different result may be only a few units of the last place away, and ours must then be
// right.
func TestLibraryLikeRealBC(t *testing.T) {
	_, err := exec.LookPath("bc")
	testenv.Need(t, "simbash", err)
	r := rand.New(rand.NewPCG(15, 2))
	const calls = 400
	var program strings.Builder
	type call struct {
		name  byte
		order int
		x     num
		scale int
	}
	var all []call
	for range calls {
		var c call
		c.name, c.order, c.x, c.scale = randomCall(r)
		c.scale++
		all = append(all, c)
		fmt.Fprintf(&program, "scale=%d;%s\n", c.scale, callText(c.name, c.order, c.x))
	}
	lines := func(s string) []string {
		return strings.Split(strings.TrimSpace(strings.ReplaceAll(s, "\\\n", "")), "\n")
	}
	cmd := exec.CommandContext(t.Context(), "bc", "-l")
	cmd.Stdin = strings.NewReader(program.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	ours, errs, _ := runBC(t, ample, program.String())
	got, want := lines(ours), lines(string(out))
	if len(got) != calls || len(want) != calls || errs != "" {
		t.Fatalf("%d and %d lines for %d calls: %s", len(got), len(want), calls, errs)
	}
	parse := func(s string) num {
		v := parseNum(strings.TrimPrefix(s, "-"), 10)
		if strings.HasPrefix(s, "-") {
			return v.neg()
		}
		return v
	}
	equal := 0
	for i, c := range all {
		if got[i] == want[i] {
			equal++
			continue
		}
		text := callText(c.name, c.order, c.x)
		exact := new(big.Rat).SetFrac(c.x.n, pow10(c.x.scale))
		if right := reference(c.name, c.order, exact, c.scale); got[i] != right {
			t.Errorf("scale=%d;%s: got %s, bc %s, right is %s", c.scale, text, got[i], want[i], right)
		}
		far := parse(got[i]).sub(parse(want[i])).rescale(c.scale)
		if far.n.CmpAbs(big.NewInt(50)) > 0 {
			t.Errorf("scale=%d;%s: got %s, bc %s", c.scale, text, got[i], want[i])
		}
	}
	t.Logf("%d of %d results are equal; in the others bc's last digits are wrong", equal, calls)
	if equal < calls*3/4 {
		t.Errorf("only %d of %d results are equal", equal, calls)
	}
}
