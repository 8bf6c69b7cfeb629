package interp_test

// bashCases are scripts that must behave as in real bash.
var bashCases = []struct {
	name    string
	scripts []string
}{
	{"basics", []string{
		`echo hi`, `echo "a b"  c`, `false`, `true; echo $?`, `exit 7`, `! true`, `! false; echo $?`, `echo a; false; echo $?`,
		`true && echo yes || echo no`, `false && echo yes || echo no`, `false || false; echo $?`, `(exit 3); echo $?`,
		`{ echo a; echo b; }`, `x=1; (x=2; echo $x); echo $x`, `echo $((1+2*3))`, `echo a; exit; echo b`,
		`nosuchcommand; echo $?`, `echo $#`, `set -- a b c; echo $# $1 $3 "$@"`, `printf '%s\n' "$0"`,
		`:; echo $?`, `echo \$HOME '$HOME' "$HOME"`, `echo "a\"b" 'c"d' e\ f`, `echo -n x; echo -e 'a\tb\n\x41\0101'; echo -E 'a\tb'`,
		"echo `echo nested \\`echo deep\\``", `echo $(echo $(echo $(echo deep)))`, `eval 'x=5; echo $x'`, `a=1 b=2; echo $a$b`,
		`if true; then echo t; else echo f; fi`, `if false; then echo t; elif true; then echo e; else echo f; fi`,
		`unset x; echo "${x-unset}"`, `command -v echo; command -v nosuch; echo $?`, `type -t if echo cat f; f() { :; }; type -t f`,
		`echo {a,b}{1,2} {1..5} {a..e} {05..10} {10..1..3} x{,y} {x}`, `echo a{b,{c,d}}e`, `echo "{a,b}" \{a,b}`, `echo ~ ~root "~"`,
		`cat <<< "here $((1+1))"`, "cat <<EOF\na $((2*3)) \\$x\nEOF", "cat <<'EOF'\n$x `y`\nEOF", "cat <<'EOF'\n~ a\\b\\n \\\\ \\$x \\ \"q\" \\\"\n\\\nEOF",
		"x=v; cat <<EOF\n~ a\\b\\n \\\\ \\$x $x \\`x\\` 'q' \"q\" \\\" \\\\\" joined\\\nline\nEOF", "cat <<\\EOF\n$x \\n\nEOF", "cat <<-EOF\n\t\tindented\n\tEOF", "cat <<A; cat <<B\n1\nA\n2\nB",
	}},
	{"loops", []string{
		`for i in a b c; do echo $i; done`, `for ((i=0;i<3;i++)); do echo $i; done`, `i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done`,
		`i=5; until [ $i -le 2 ]; do echo $i; ((i--)); done`, `for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; echo $i; done`,
		`for i in 1 2; do for j in a b; do [ $j = b ] && continue 2; echo $i$j; done; done`, `for i in 1 2; do for j in a b; do break 2; done; done; echo $i$j`,
		`while read -r l; do echo "[$l]"; done`, `while read a b; do echo "$b-$a"; done <<< $'1 2 3\n4 5'`, `for i; do echo $i; done`, `set -- x y; for i; do echo $i; done`,
		`while :; do break; done; echo $?`, `for i in; do echo no; done; echo $?`, `until true; do :; done; echo $?`, `while false; do :; done; echo $?`,
	}},
	{"case", []string{
		`case abc in a*) echo 1;; *) echo 2;; esac`, `case x in a|x) echo 1;; esac`, `case x in y) echo 1;; esac; echo $?`, `case a in a) echo 1;& b) echo 2;; c) echo 3;; esac`,
		`case ab in a*) echo 1;;& *b) echo 2;;& c) echo 3;; esac`, `case "a*" in "a*") echo lit;; esac`, `x='*'; case abc in "$x") echo q;; $x) echo u;; esac`, "shopt -s extglob\ncase foo.txt in *.@(txt|md)) echo doc;; esac",
		"shopt -s extglob\ncase foo in !(bar)) echo notbar;; esac", `case "" in "") echo empty;; esac`, `case a]b in a]b) echo y;; esac`, `case 5 in [0-9]) echo digit;; esac`, `case X in [[:upper:]]) echo up;; esac`, `case b in [!a]) echo ok;; esac`,
	}},
	{"parameters", []string{
		`x=hello; echo ${x} ${#x} ${x:1:3} ${x: -2} ${x:1} ${x:0:-1}`, `echo ${x:-def} ${x-def} "${x:-a b}"; x=; echo "[${x:-def}] [${x-def}]"`, `echo ${x:=val} $x`, `x=1; echo ${x:+alt} ${y:+alt}.`,
		`f=/a/b/c.tar.gz; echo ${f##*/} ${f#*/} ${f%.*} ${f%%.*} ${f%/*}`, `x=banana; echo ${x/a/A} ${x//a/A} ${x/#b/B} ${x/%a/Z} ${x//an} ${x/x/y}`, `x=hello; echo ${x^} ${x^^} ${x^^[el]}; y=HELLO; echo ${y,} ${y,,}`,
		`x=y; y=z; echo ${!x}`, `abc1=1 abc2=2; echo ${!abc*}`, `(echo ${x:?custom}) 2>/dev/null; echo $?`, `set -- a b c d; echo "${@:2:2}" "${*:3}" ${@: -1}`, `set -- "a b" c; for i in "$@"; do echo [$i]; done; for i in $@; do echo [$i]; done; for i in "$*"; do echo [$i]; done`,
		`IFS=:; set -- a b; echo "$*"`, `x="a:b:c"; IFS=:; for i in $x; do echo [$i]; done`, `x=" a  b "; for i in $x; do echo [$i]; done; echo "$x"`, `x=":a::b:"; IFS=:; for i in $x; do echo "[$i]"; done`, `IFS=" :"; x="a : b:: c"; for i in $x; do echo "[$i]"; done`,
		`x=abc; echo "${x/b/"$x"}"`, `x='a.b.c'; echo ${x//./-}`, `x=aXbXc; echo ${x#*X} ${x##*X} ${x%X*} ${x%%X*}`, `x="a*b"; echo "${x%\*b}" "${x/\*/-}"`, `x=abcabc; p='b*'; echo ${x%$p} ${x%%$p} "${x%"$p"}"`, `x=héllo; echo ${#x} ${x:1:1}`,
		`x=$'a\tb\n'; printf '%s|' "$x"`, `echo "${x@Q}"; x="it's"; echo "${x@Q}"`, `x=5; echo $((x++)) $x $((++x))`, `echo "${#}" "${#@}" ${#*}`, `x=(1 2); echo ${x:-no} ${x[5]:-none}`, `echo "${x:-"quoted default"}" '${x}'`, `x=foo; echo "${x:+"$x bar"}"`, `a=1; echo ${a+set} ${b+set}.`,
		`set -- {1..12}; echo $10 ${10} ${12}`, `x="  lead"; echo $x "$x"`, `echo "$(printf 'a\n\n\n')"x`, `x=/usr/lib; echo ${x//\//:}`, `x=aaa; echo ${x/a*/b} ${x/#a/b}`, `x='[a]'; echo ${x//[\[\]]/}`, `echo ${HOME#/}`, `x=abc; echo ${x:$((1+0)):1}`,
	}},
	{"arrays", []string{
		`a=(x "y z" w); echo ${a[1]} ${#a[@]} "${a[@]}" ${a[-1]} $a`, `a=(1 2 3); a+=(4); a[10]=x; echo ${!a[@]} ${a[@]}`, `a=(a b c); unset 'a[1]'; echo ${a[@]} ${#a[@]} ${!a[@]}`, `a=(a b c); for i in "${a[@]}"; do echo [$i]; done; echo "${a[*]}"`, `a=("x y" z); for i in "${a[@]:0:1}"; do echo [$i]; done`, `a=([3]=c [1]=a); echo ${!a[@]} ${a[@]}`,
		`declare -A m; m[a]=1; m[b]=2; echo ${m[a]} ${#m[@]}; for k in a b; do echo $k=${m[$k]}; done`, `declare -A m=([x]=1); echo ${m[x]} "${m[y]-none}"; unset 'm[x]'; echo ${#m[@]}`, `a=(); echo ${#a[@]} "${a[@]}" end`, `a=(b c); echo "${a[@]/#/x}" ${a[@]%c} ${a[@]^^}`, `x=3; a=(1 2 3 4); echo ${a[x]} ${a[x-1]} ${a[$x]}`, `a=(1 2 3); b=("${a[@]}" 4); echo ${#b[@]}`, `read -a w <<< "a b c"; echo ${w[2]} ${#w[@]}`, `mapfile -t l <<< $'x\ny'; echo ${#l[@]} ${l[1]}`, `a=(1 2); a[0]+=5; echo ${a[0]}`, `f() { local a=(1 2); echo ${a[@]}; }; f; echo "${a[@]}"`, `a=("$@"); echo ${#a[@]}`, `a=(*nomatch*); echo ${a[0]}`, `((a[2]=5)); echo ${a[2]} ${#a[@]}`, `a=(3 1 2); echo $((a[0]+a[1]))`, `declare -a z; z[5]=q; echo ${z[@]}`, `declare -p nosuch 2>/dev/null; echo $?`, `a=(1 "b c"); declare -p a`,
	}},
	{"functions", []string{
		`f() { echo "$1-$#"; return 3; }; f a b; echo $?`, `function g { echo g; }; g`, `f() { local x=1; x=2; echo $x; }; x=0; f; echo $x`, `f() { x=5; }; f; echo $x`, `f() { g; }; g() { echo $x; }; h() { local x=in; f; }; x=out; h; f`, `fact() { [ $1 -le 1 ] && echo 1 || echo $(( $1 * $(fact $(( $1 - 1 ))) )); }; fact 6`, `f() { return; }; false; f; echo $?`, `f() (x=1; echo sub); x=0; f; echo $x`, `f() { echo $FUNCNAME; }; f`, `f() { shift; echo $1; }; f a b; echo $1.`, `f() { echo "$@"; } ; f "a b" c`, `f() { echo out; echo err >&2; } 2>/dev/null; f`, `unset -f f; f() { echo 1; }; unset -f f; f 2>/dev/null; echo $?`, `f() { local a b=2; echo "[$a][$b]"; }; f`, `f() { for i in 1 2; do return 5; done; }; f; echo $?`, `x=1 eval 'echo $x'; echo [$x]`, `f() { echo $v; }; v=1 f; echo [$v]`, `f() { declare -i n=2+3; echo $n; }; f`, `f() { local -n r=$1; r=new; }; y=old; f y; echo $y`,
	}},
	{"arithmetic", []string{
		`echo $((2**10)) $((7/2)) $((-7/2)) $((7%3)) $((-7%3)) $((1<<4)) $((0xff)) $((010)) $((2#101)) $((36#z))`, `echo $((1>2?3:4)) $((1&&0)) $((1||0)) $((!5)) $((~5)) $((5&3)) $((5|3)) $((5^3))`, `x=5; ((x+=3)); echo $x; ((x==8)) && echo eq; ((x<3)) || echo ge`, `let "a=5*2" b=a+1; echo $a $b`, `echo $((x=5, x*2)) $x`, `x=y; y=3; echo $((x+1))`, `((0)); echo $?; ((1)); echo $?`, `echo $(( (1+2)*3 )) $((- -3)) $((+3))`, `i=1; echo $((i++ + ++i)) $i`, `echo $((10#08))`, `x=10; echo $((x*=2)) $((x-=1)) $((x/=3)) $((x%=4)) $((x<<=2))`, `echo $((9223372036854775807+1))`, `((1/0)) 2>/dev/null; echo $?`, `echo $((1==1)) $((1!=1)) $((2>=2)) $((2<=1))`, `unset u; echo $((u+1))`, `echo $[1+2]`, `for ((i=0,j=10;i<j;i+=3,j-=3)); do echo $i $j; done`, `x="1+2"; echo $((x*2))`, `a=3; echo $(( $a * 2 )) $((a ** 2))`,
	}},
	{"tests", []string{
		`[ a = a ] && echo 1; [ a != b ] && echo 2; [ -z "" ] && echo 3; [ -n x ] && echo 4; [ 1 -lt 2 ] && echo 5; [ ! 1 -gt 2 ] && echo 6`, `[[ abc == a* ]] && echo 1; [[ abc == "a*" ]] || echo 2; [[ a < b ]] && echo 3; [[ abc =~ ^a(.)c$ ]] && echo ${BASH_REMATCH[1]}`, `[ 1 -eq 1 -a 2 -eq 2 ] && echo 1; [ 1 -eq 2 -o 1 -eq 1 ] && echo 2`, `[[ -z "" && ( 1 -eq 1 || x == y ) ]] && echo 1; [[ ! a == b ]] && echo 2`, `touch f; [ -f f ] && echo f; [ -d . ] && echo d; [ -e nope ] || echo n; [ -s f ] || echo empty; [ -x f ] || echo nx; mkdir d; [ -d d ] && echo dd`, `[ ]; echo $?; [ x ]; echo $?; test; echo $?; [ "" ]; echo $?`, `x=5; [[ x -eq 5 ]] && echo arith; [[ -v x ]] && echo v; [[ -v nope ]] || echo nv`, `[[ "a b" == "a b" ]] && echo y; v="a b"; [[ $v == "a b" ]] && echo y2`, `[[ foo.txt == *.txt ]] && echo m; [[ 10 -gt 9 ]] && echo n; [[ a != b ]]; echo $?`, `[ "(" = "(" ] && echo p; [ ! ]; echo $?; [ ! "" ] && echo q; [ -n ] && echo r`, `re='^[0-9]+$'; [[ 123 =~ $re ]] && echo num; [[ 12a =~ $re ]] || echo not`, `[[ "x.y" =~ x\.y ]] && echo e; [[ "xzy" =~ "x.y" ]] || echo lit`, `[ a -eq 1 ] 2>/dev/null; echo $?`, `ln -s nowhere l; [ -L l ] && echo L; [ -e l ] || echo dangling; [ -h l ] && echo h`, `touch -d 2020-01-01 o; touch n; [ n -nt o ] && echo newer; [ o -ot n ] && echo older`, `[[ a ]] && echo 1; [[ "" ]] || echo 2`,
	}},
	{"redirections", []string{
		`echo a > f; echo b >> f; cat f; cat < f; wc -l < f`, `echo out; echo err >&2`, `{ echo o; echo e >&2; } > f 2>&1; cat f`, `{ echo o; echo e >&2; } &> f; sort f`, `ls nope 2>/dev/null; echo $?`, `echo a > f; exec 3< f; read x <&3; echo $x; exec 3<&-`, `exec 4> g; echo hey >&4; exec 4>&-; cat g`, `echo a | cat | cat`, `echo a 1>&2 2>/dev/null; echo b`, `cat nofile 2>&1 >/dev/null | wc -l`, `set -C; echo a > f; echo b > f 2>/dev/null; echo $?; echo c >| f; cat f`, `> f; [ -e f ] && echo made; wc -c < f`, `while read l; do echo "<$l>"; done < <(printf 'a\nb\n')`, `cat <(echo x) <(echo y)`, `echo x | tee a b; cat a b`, `{ read a; read b; } <<< $'1\n2'; echo $b$a`, `f() { cat; }; echo piped | f`, `echo hi > "a b"; cat "a b"`, `x=f; echo hi > $x; cat f`, `echo hi > nodir/f 2>/dev/null; echo $?`, `exec {fd}> out; echo via >&$fd; exec {fd}>&-; cat out`, `cat <<EOF | tr a-z A-Z
heredoc $((1+1))
EOF`, `echo a >f 2>&1; cat f`, `( echo sub ) > f; cat f`, `for i in 1 2; do echo $i; done > f; cat f`, `if true; then echo x; fi > f; cat f`, `read -r line; echo "$line"; cat`, `exec 5>&1; echo five >&5`,
	}},
	{"pipes", []string{
		`echo abc | tr a-c A-C`, `printf '3\n1\n2\n' | sort | head -1`, `false | true; echo $?`, `true | false; echo $?`, `set -o pipefail; false | true; echo $?`, `exit 3 | exit 4; echo ${PIPESTATUS[0]} ${PIPESTATUS[1]}`, `yes | head -3`, `seq 1 100000 | tail -1`, `echo a | (read x; echo got $x)`, `x=1; echo 2 | read x; echo $x`, `echo err 2>&1 >&2 | cat`, `{ echo a; echo b >&2; } |& sort`, `seq 5 | while read n; do echo $((n*n)); done`, `echo a b c | xargs -n1 echo item`, `! false | true; echo $?`, `while :; do echo y; done | head -2`, `seq 10 | grep 1 | wc -l`, `cat /dev/zero | head -c 5 | wc -c`,
	}},
	{"options", []string{
		`set -e; false; echo no`, `set -e; false || true; echo yes`, `set -e; if false; then :; fi; echo yes`, `set -e; ! true; echo yes`, `set -e; (false); echo no`, `set -e; f() { false; echo in; }; f; echo no`, `set -e; f() { false; echo in; }; f || echo or`, `set -e; x=$(false); echo no`, `set -e; echo $(false); echo yes`, `set -e; false && true; echo yes`, `set -e; true && false; echo no`, `set -u; echo $nope; echo no`, `set -u; echo ${nope:-def}; echo yes`, `set -euo pipefail; false | true; echo no`, `set -x; echo a 2>/dev/null`, `set -e; while false; do :; done; echo ok`, `set -e; { false; echo a; } || echo b`, `set -f; echo *; set +f`, `set -a; x=5; bash -c 'echo $x'`, `set -- -a b; echo $1; set --; echo $#`, `set -e; trap 'echo bye' EXIT; false; echo no`, `set -o errexit; set +o errexit; false; echo on`, `case $- in *e*) echo e;; *) echo none;; esac; set -e; case $- in *e*) echo e;; esac`,
	}},
	{"traps", []string{
		`trap 'echo bye $?' EXIT; echo hi`, `trap 'echo bye' EXIT; exit 3`, `trap 'echo bye; exit 9' EXIT; exit 3`, `(trap 'echo sub' EXIT; echo in); echo out`, `trap 'echo t' TERM; kill -TERM $$; echo after`, `trap 'echo u' USR1; kill -USR1 $$; echo x`, `trap '' TERM; kill $$; echo alive`, `trap 'echo err' ERR; false; true; echo done`, `trap 'echo x' EXIT; trap - EXIT; echo none`, `trap 'echo a' EXIT; trap`, `f() { trap 'echo ex' EXIT; }; f; echo m`,
	}},
	{"jobs", []string{
		`sleep 0.05 & wait; echo $?`, `(sleep 0.05; exit 4) & wait $!; echo $?`, `echo a & wait; echo b`, `sleep 5 & kill $!; wait $! 2>/dev/null; echo $?`, `{ for i in 1 2 3; do (sleep 0.$i; echo $i) & done; wait; echo all; } | sort`, `x=1; { x=2; } & wait; echo $x`, `(exit 2) & p=$!; wait $p; echo $?; wait 99999 2>/dev/null; echo $?`, `sleep 100 & sleep 0.01; kill -0 $! && echo running; kill $!; wait; kill -0 $! 2>/dev/null || echo gone`, `timeout 0.05 sleep 5; echo $?`, `bash -c 'kill -9 $$'; echo $?`, `(kill -TERM $BASHPID); echo $?`, `x=$(sleep 0.05 & echo hi); echo $x`,
	}},
	{"printf", []string{
		`printf '%s-%d-%x-%o-%c|%5s|%-5s|%05d|%.2f|%e\n' a 10 255 8 xyz r l 42 3.14159 12345.678`, `printf '%s\n' a b c`, `printf '%s %s\n' a b c`, `printf 'no newline'`, `printf '%b' 'a\nb\tc\n'`, `printf '%%|%q|%q\n' 'a b' "it's"`, `printf -v x '%03d' 7; echo $x`, `printf '%d\n' 0x1f 010 "'A"`, `printf '%*d|%-*d|\n' 5 1 5 2`, `printf '\x41\101\n'`, `printf '%s'; echo; printf '%d\n'`, `printf '%+d % d\n' 5 5`, `printf '%.3s|\n' abcdef`, `printf '%i %u\n' 3 4`, `printf '%g %G\n' 0.0001 1e20`, `printf '%X %#x\n' 255 255`, `printf 'a\\b\n'`, `printf '%d\n' abc 2>/dev/null; echo $?`, `printf "%s\n" "$(printf 'x\ny')"`, `printf '%5.1f|\n' 3.14159`,
	}},
	{"globs", []string{
		`touch a.txt b.txt c.md .hid; echo *; echo *.txt; echo ?.md; echo [ab].*; echo *.nope; echo .h*`, `mkdir -p d/e; touch d/x d/e/y; echo d/*; echo */*; echo */; echo d/*/y`, `touch 'a b'; for f in *; do echo "[$f]"; done`, `shopt -s nullglob; echo *.nope end`, `touch a b; echo "*" '*' \*`, `x='*'; touch a; echo $x "$x"`, `touch a1 a2 b1; echo a[0-9]; echo [!a]*; shopt -s extglob
echo @(a|b)1`, `shopt -s globstar; mkdir -p p/q; touch p/q/z; echo **; echo **/z`, `shopt -s dotglob; touch .h a; echo *`, `touch x; ls *x*`, `cd /; echo /us[r]`, `mkdir -p s/t; touch s/t/a; cd s/t; echo ./*; echo ../*/a | wc -w`, `touch '[x]'; echo [[]x]`, `shopt -s extglob
touch foo bar baz; echo !(foo); echo ba?(r); echo +([a-f])`,
	}},
	{"read", []string{
		`read x; echo "$x"`, `read -r a b c <<< "1 2 3 4"; echo "$c"`, `IFS=, read a b <<< "x,y,z"; echo "$a|$b"`, `IFS= read -r l <<< "  sp  "; echo "[$l]"`, `read l <<< "  sp  "; echo "[$l]"`, `read -r x <<< 'a\tb'; echo "$x"; read x <<< 'a\tb'; echo "$x"`, `read -d: x <<< "a:b"; echo $x`, `read -n3 x <<< "abcdef"; echo $x`, `read x < /dev/null; echo $?`, `printf 'no newline' | { read x; echo "$? $x"; }`, `read -p prompt x <<< v; echo $x`, `read <<< hello; echo $REPLY`, `IFS=: read -ra p <<< "a:b:c"; echo ${#p[@]} ${p[1]}`, `while IFS='=' read -r k v; do echo "$k -> $v"; done <<< $'a=1\nb=2=3'`, `printf 'a\0b\0' | while IFS= read -r -d '' x; do echo "<$x>"; done`,
	}},
	{"builtins", []string{
		`cd /tmp && pwd; cd - >/dev/null; cd /usr; cd /; pwd; echo $OLDPWD`, `cd /nonexistent 2>/dev/null; echo $?`, `mkdir -p a/b; cd a/b; cd ../..; ls`, `shift 2; echo $?; set -- a b c; shift; echo $*`, `export X=5; bash -c 'echo $X'; unset X; bash -c 'echo [$X]'`, `readonly r=1; (r=2) 2>/dev/null; echo $? $r`, `while getopts "ab:c" o -a -b val -c; do echo "$o $OPTARG"; done`, `set -- -x -- y; while getopts x o; do echo $o; done; shift $((OPTIND-1)); echo $1`, `umask 022; umask`, `echo 'echo sourced $1; return 4' > s; . ./s arg; echo $?`, `echo 'v=1' > s; source s; echo $v`, `exec echo replaced; echo no`, `bash -c 'echo $0 $1' name arg`, `echo 'echo script $0 $1 $#' > s.sh; bash s.sh a b`, `printf '#!/bin/bash\necho hi $1\n' > s; chmod +x s; ./s you`, `echo x > s; ./s 2>/dev/null; echo $?`, `mkdir d; ./d 2>/dev/null; echo $?`, `./nofile 2>/dev/null; echo $?`, `echo $SHLVL | grep -c .`, `command echo hi; builtin echo ho`, `env A=1 bash -c 'echo $A'; env -i bash -c 'echo ${HOME-none}'`, `declare -i n=5; n+=3; echo $n; declare -u u=abc; echo $u; declare -l l=ABC; echo $l`, `declare -r c=1; echo $c; declare -x e=2; bash -c 'echo $e'`, `x=1; unset x; echo ${x-gone}`, `local x 2>/dev/null; echo $?`, `echo "if then" | bash 2>/dev/null; echo $?`, `echo 'echo from stdin' | bash`, `eval "$(echo 'echo a; echo b')"`, `true; [ $? = 0 ] && echo ok`, `time true 2>/dev/null; echo ok`, `echo a; )`, `echo "$BASH_VERSION" | grep -c '^5'`, `kill -l 9; kill -l TERM`,
	}},
}
