package jq

import "math"

func addMath(add func(string, int, func(m *vm, v any, a []any) (any, error))) {
	for name, f := range map[string]func(float64) float64{
		"floor": math.Floor, "ceil": math.Ceil, "round": math.Round, "sqrt": math.Sqrt, "trunc": math.Trunc, "fabs": math.Abs,
		"exp": math.Exp, "exp2": math.Exp2, "exp10": func(x float64) float64 { return math.Pow(10, x) }, "expm1": math.Expm1,
		"log": math.Log, "log2": math.Log2, "log10": math.Log10, "log1p": math.Log1p, "cbrt": math.Cbrt, "sin": math.Sin, "cos": math.Cos,
		"tan": math.Tan, "asin": math.Asin, "acos": math.Acos, "atan": math.Atan, "sinh": math.Sinh, "cosh": math.Cosh, "tanh": math.Tanh,
		"asinh": math.Asinh, "acosh": math.Acosh, "atanh": math.Atanh, "rint": math.RoundToEven, "nearbyint": math.RoundToEven,
		"gamma": lgamma, "lgamma": lgamma, "tgamma": math.Gamma, "logb": math.Logb, "j0": math.J0, "j1": math.J1, "y0": math.Y0, "y1": math.Y1,
		"pow10": func(x float64) float64 { return math.Pow(10, x) },
		"significand": func(x float64) float64 {
			if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
				return x
			}
			f, _ := math.Frexp(x)
			return f * 2
		},
	} {
		add(name, 0, func(_ *vm, v any, _ []any) (any, error) {
			x, ok := number(v)
			if !ok {
				return nil, errorf("%s number required", described(v))
			}
			return f(x), nil
		})
	}
	for name, f := range map[string]func(a, b float64) float64{
		"pow": math.Pow, "atan2": math.Atan2, "fmod": math.Mod, "fmin": math.Min, "fmax": math.Max, "hypot": math.Hypot, "drem": math.Remainder,
		"copysign": math.Copysign, "nextafter": math.Nextafter, "fdim": math.Dim,
		"ldexp":   func(a, b float64) float64 { return math.Ldexp(a, int(toInt(b))) },
		"scalb":   func(a, b float64) float64 { return math.Ldexp(a, int(toInt(b))) },
		"scalbln": func(a, b float64) float64 { return math.Ldexp(a, int(toInt(b))) },
	} {
		add(name, 2, func(_ *vm, _ any, a []any) (any, error) {
			x, ok1 := number(a[0])
			y, ok2 := number(a[1])
			if !ok1 {
				return nil, errorf("%s number required", described(a[0]))
			}
			if !ok2 {
				return nil, errorf("%s number required", described(a[1]))
			}
			return f(x, y), nil
		})
	}
	add("fma", 3, func(_ *vm, _ any, a []any) (any, error) {
		x, ok1 := number(a[0])
		y, ok2 := number(a[1])
		z, ok3 := number(a[2])
		if !ok1 || !ok2 || !ok3 {
			return nil, errorf("number required")
		}
		return math.FMA(x, y, z), nil
	})
	is := func(name string, f func(float64) any) {
		add(name, 0, func(_ *vm, v any, _ []any) (any, error) {
			x, ok := number(v)
			if !ok {
				return nil, errorf("%s number required", described(v))
			}
			return f(x), nil
		})
	}
	is("isinfinite", func(x float64) any { return math.IsInf(x, 0) })
	is("isnan", func(x float64) any { return math.IsNaN(x) })
	is("isnormal", func(x float64) any { return x != 0 && !math.IsInf(x, 0) && !math.IsNaN(x) && math.Abs(x) >= 0x1p-1022 })
	is("frexp", func(x float64) any { f, e := math.Frexp(x); return []any{f, float64(e)} })
	is("modf", func(x float64) any { i, f := math.Modf(x); return []any{f, i} })
	add("infinite", 0, func(*vm, any, []any) (any, error) { return math.Inf(1), nil })
	add("nan", 0, func(*vm, any, []any) (any, error) { return math.NaN(), nil })
	add("abs", 0, func(_ *vm, v any, _ []any) (any, error) {
		if Compare(v, 0.0) < 0 { // as in older versions of jq, also for null and booleans
			return negate(v)
		}
		return v, nil
	})
}

func lgamma(x float64) float64 { f, _ := math.Lgamma(x); return f }
