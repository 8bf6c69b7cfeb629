package jq

import (
	"fmt"
	"sync"

	"github.com/itchyny/gojq"
)

// source is what is easiest to say in jq itself.
const source = `
def map_values(f): .[] |= f;
def recurse_down: recurse;
def values: select(. != null);
def nulls: select(. == null);
def booleans: select(type == "boolean");
def numbers: select(type == "number");
def strings: select(type == "string");
def arrays: select(type == "array");
def objects: select(type == "object");
def iterables: select(type|. == "array" or . == "object");
def scalars: select(type|. != "array" and . != "object");
def finites: select(isinfinite or isnan | not);
def normals: select(isnormal);
def add(f): reduce f as $x (null; . + $x);
def first: .[0];
def last: .[-1];
def nth($n): .[$n];
def nth($n; f): if $n < 0 then error("nth doesn't support negative indices")
  else label $out | foreach f as $x ($n + 1; . - 1; if . <= 0 then $x, break $out else empty end) end;
def in(xs): . as $x | xs | has($x);
def inside(xs): . as $x | xs | contains($x);
def to_entries: [keys_unsorted[] as $k | {key: $k, value: .[$k]}];
def with_entries(f): to_entries | map(f) | from_entries;
def paths: path(..) | select(length > 0);
def paths(node_filter): . as $dot | paths | select(. as $p | $dot | getpath($p) | node_filter);
def leaf_paths: paths(scalars);
def isvalid(f): try (f | true) catch false;
def match(re; mode): _match(re; mode) | .[];
def match($val): ($val | type) as $vt | if $vt == "string" then match($val; null)
  elif $vt == "array" and ($val | length) > 1 then match($val[0]; $val[1])
  elif $vt == "array" and ($val | length) > 0 then match($val[0]; null)
  else error($vt + " not a string or array") end;
def test(re; mode): _test(re; mode);
def test($val): ($val | type) as $vt | if $vt == "string" then test($val; null)
  elif $vt == "array" and ($val | length) > 1 then test($val[0]; $val[1])
  elif $vt == "array" and ($val | length) > 0 then test($val[0]; null)
  else error($vt + " not a string or array") end;
def _capture_object: reduce (.captures | .[] | select(.name != null)) as $c ({}; . + {($c.name): $c.string});
def capture(re; mods): match(re; mods) | _capture_object;
def capture($val): match($val) | _capture_object;
def scan($re; $flags): match($re; "g" + $flags) | if (.captures | length) > 0 then [.captures | .[] | .string] else .string end;
def scan($re): scan($re; null);
def splits($re): splits($re; null);
def splits($re; flags): split($re; flags) | .[];
def split($re; flags): . as $s | [foreach ((match($re; flags + "g") | [.offset, .length]), null) as $m
  ([0, null]; .[0] as $at | if $m == null then [$at, $s[$at:]] else [$m[0] + $m[1], $s[$at:$m[0]]] end; .[1])];
def todate: strftime("%Y-%m-%dT%H:%M:%SZ");
def fromdateiso8601: strptime("%Y-%m-%dT%H:%M:%SZ") | mktime;
def todateiso8601: strftime("%Y-%m-%dT%H:%M:%SZ");
def fromdate: fromdateiso8601;
def date: todate;
def dateadd(u; n): . + n;
def datesub(u; n): . - n;
def dateadd(u): . + u;
def combinations: if length == 0 then [] else .[0][] as $x | (.[1:] | combinations) as $w | [$x] + $w end;
def combinations(n): . as $dot | [range(n)] | map($dot) | combinations;
def walk(f): def w: if type == "object" then map_values(w) elif type == "array" then map(w) else . end | f; w;
def env: $ENV;
def repeat(f): def r: f, r; r;
def isfinite: type == "number" and (isinfinite | not);
def halt_error: halt_error(5);
def fromstream(f): {x: null, e: false} as $init | foreach f as $i ($init;
  if .e then $init else . end | if $i | length == 2
  then setpath(["e"]; $i[0] | length == 0) | setpath(["x"] + $i[0]; $i[1])
  else setpath(["e"]; $i[0] | length == 1) end; if .e then .x else empty end);
def truncate_stream(stream): . as $n | null | stream | . as $input | if (.[0] | length) > $n then setpath([0]; .[0][$n:]) else empty end;
def pick(pathexps): . as $top | reduce path(pathexps) as $p (null; setpath($p; $top | getpath($p)));
def have_literal_numbers: true;
def have_decnum: false;
def INDEX(stream; idx_expr): reduce stream as $row ({}; .[$row | idx_expr | tostring] |= $row);
def INDEX(idx_expr): INDEX(.[]; idx_expr);
def IN(s): any(s == .; .);
def IN(src; s): any(src == s; .);
def JOIN($idx; idx_expr): [.[] | [., $idx[idx_expr]]];
def JOIN($idx; stream; idx_expr): stream | [., $idx[idx_expr]];
def JOIN($idx; stream; idx_expr; join_expr): stream | [., $idx[idx_expr]] | join_expr;
def error(msg): msg | error;
`

// library returns the builtins that are written in jq, by name/arity.
var library = sync.OnceValue(func() map[string]*gojq.FuncDef {
	q, err := gojq.Parse(source + ".")
	if err != nil {
		panic("jq: the library: " + err.Error())
	}
	out := map[string]*gojq.FuncDef{}
	for _, d := range q.FuncDefs {
		out[fmt.Sprintf("%s/%d", d.Name, len(d.Args))] = d
	}
	return out
})
