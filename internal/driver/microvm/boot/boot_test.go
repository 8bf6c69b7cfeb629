package boot

import (
	"reflect"
	"strings"
	"testing"
)

// TestOrderReturns sends an order through a command line.
func TestOrderReturns(t *testing.T) {
	want := Order{Hostname: "a b=\"c\"", MTU: 65520, Pids: 128, ShmMB: 64, Args: []string{"/.carrel/guest", "-gateway", "10.73.0.1"}, Env: []string{"HOME=/root"}}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text, " \n\"") {
		t.Errorf("the kernel would cut %q", text)
	}
	got, err := Decode("console=ttyS0 quiet " + text + " nokaslr\n")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := (Order{Args: []string{strings.Repeat("x", MaxOrder)}}).Encode(); err == nil {
		t.Error("an order that the kernel would cut is no error")
	}
}

// FuzzDecode reads command lines that nobody wrote.
func FuzzDecode(f *testing.F) {
	text, _ := Order{Trial: true}.Encode()
	for _, s := range []string{"", "quiet", text, "carrel=", "carrel=e30", "carrel=!!", "carrel=bnVsbA carrel=e30"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := Decode(s)
		if err != nil {
			return
		}
		again, err := o.Encode()
		if err != nil {
			return // its bytes grew: JSON escapes
		}
		if back, err := Decode(again); err != nil || !reflect.DeepEqual(back, o) {
			t.Errorf("%+v came back as %+v, %v", o, back, err)
		}
	})
}
