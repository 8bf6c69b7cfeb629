//go:build linux

package microvm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// lines writes requests as a person would read them.
func lines(t *testing.T, requests []apiRequest) string {
	t.Helper()
	var b strings.Builder
	for _, r := range requests {
		body, err := json.Marshal(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(r.Method + " " + r.Path + " " + string(body) + "\n")
	}
	return b.String()
}

// TestFirecrackerRequests compares everything that is asked of Firecracker with its documentation.
func TestFirecrackerRequests(t *testing.T) {
	const line = "console=ttyS0 quiet panic=-1 reboot=k pci=off i8042.noaux i8042.nomux i8042.nopnp i8042.dumbkbd" +
		" oops=panic 8250.nr_uarts=1 cryptomgr.notests audit=0 random.trust_cpu=on carrel="
	m := &machine{engine: firecracker{}}
	spec := driver.Spec{Limits: carrel.Limits{CPUs: 0.5, MemoryMB: 256}}
	for name, c := range map[string]struct {
		l    *launch
		want string
	}{
		"a sandbox": {&launch{spec: spec, writeable: map[string]string{"/disks/write": "/data/disk"}}, `PUT /machine-config {"vcpu_count":1,"mem_size_mib":256}
PUT /boot-source {"kernel_image_path":"/kernel","initrd_path":"/initrd","boot_args":"` + line + `e30"}
PUT /drives/root {"drive_id":"root","path_on_host":"/disks/root","is_root_device":false,"is_read_only":true}
PUT /drives/guest {"drive_id":"guest","path_on_host":"/disks/guest","is_root_device":false,"is_read_only":true}
PUT /drives/write {"drive_id":"write","path_on_host":"/disks/write","is_root_device":false,"is_read_only":false}
PUT /network-interfaces/eth0 {"iface_id":"eth0","guest_mac":"` + driver.GuestMAC + `","host_dev_name":"tap0"}
PUT /actions {"action_type":"InstanceStart"}
`},
		"a trial": {&launch{spec: spec, order: boot.Order{Trial: true}}, `PUT /machine-config {"vcpu_count":1,"mem_size_mib":256}
PUT /boot-source {"kernel_image_path":"/kernel","initrd_path":"/initrd","boot_args":"` + line + `eyJ0cmlhbCI6dHJ1ZX0"}
PUT /actions {"action_type":"InstanceStart"}
`},
		"an extraction": {&launch{spec: spec, order: boot.Order{Extract: true}, writeable: map[string]string{"/disks/tar": "/tmp/tar"}}, `PUT /machine-config {"vcpu_count":1,"mem_size_mib":256}
PUT /boot-source {"kernel_image_path":"/kernel","initrd_path":"/initrd","boot_args":"` + line + `eyJleHRyYWN0Ijp0cnVlfQ"}
PUT /drives/write {"drive_id":"write","path_on_host":"/disks/write","is_root_device":false,"is_read_only":true}
PUT /drives/tar {"drive_id":"tar","path_on_host":"/disks/tar","is_root_device":false,"is_read_only":false}
PUT /actions {"action_type":"InstanceStart"}
`},
	} {
		requests, err := bootRequests(m, c.l)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(t, requests); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
	if _, err := bootRequests(m, &launch{order: boot.Order{Env: []string{strings.Repeat("x", 2000)}}}); err == nil {
		t.Error("an order that the kernel would cut is no error")
	}
	const time = `GET / null
PATCH /vm {"state":"Paused"}
PUT /snapshot/create {"snapshot_type":"Full","snapshot_path":"/save/state","mem_file_path":"/save/ram"}
PATCH /vm {"state":"Resumed"}
PUT /snapshot/load {"snapshot_path":"/fd/7","mem_backend":{"backend_type":"File","backend_path":"/fd/6"},"resume_vm":false}
`
	if got := lines(t, []apiRequest{describeRequest, pauseRequest, createRequest, resumeRequest, loadRequest}); got != time {
		t.Errorf("got\n%s\nwant\n%s", got, time)
	}
}

// TestFirecrackerOrder: the VMM's root has what it needs, and nothing else of the host.
func TestFirecrackerOrder(t *testing.T) {
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 1<<30); err != nil {
		t.Fatal(err)
	}
	d := &Driver{mark: "microvm-0123/"}
	m := &machine{engine: firecracker{}, program: "/opt/firecracker", kernel: "/k", initrd: "/i", devices: map[string]string{kvmDevice: "/d/kvm", tunDevice: "/d/tun"}}
	l := &launch{spec: driver.Spec{ID: "ix", Limits: carrel.Limits{MemoryMB: 256}}, order: boot.Order{MTU: 1500}, host: os.Stdin,
		shown: map[string]string{"/disks/root": "/t/root"}, writeable: map[string]string{"/disks/write": disk}}
	got, err := firecracker{}.order(d, m, l)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(`{
 "Args": [
  "/firecracker",
  "--id",
  "microvm-0123-ix",
  "--api-sock",
  "/run/api"
 ],
 "Shared": null,
 "Files": {
  "/disks/root": "/t/root",
  "/firecracker": "/opt/firecracker",
  "/initrd": "/i",
  "/kernel": "/k"
 },
 "KVM": false,
 "Program": "/firecracker",
 "Writeable": {
  "/disks/write": "DISK"
 },
 "Devices": {
  "/dev/kvm": "/d/kvm",
  "/dev/net/tun": "/d/tun",
  "/dev/urandom": "/dev/urandom"
 },
 "Run": "/run",
 "MaxFile": 1073741824,
 "TAP": {
  "Name": "tap0",
  "MTU": 1500,
  "Device": "/d/tun",
  "Socket": 5
 },
 "Descriptors": false
}`, "DISK", disk)
	if string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
}

// TestFirecrackerVersion reads what the program says of itself.
func TestFirecrackerVersion(t *testing.T) {
	for line, want := range map[string]string{
		"Firecracker v1.8.0":      "Firecracker v1.8.0",
		"Firecracker v1.16.0-dev": "Firecracker v1.16.0-dev",
		"Firecracker v2.0.1\r":    "Firecracker v2.0.1",
		"2026-01-01 [main] Running\nFirecracker v1.10.1\n\n2026-01-01 [main] Firecracker exiting successfully.": "Firecracker v1.10.1",
		"Firecracker v1.7.9":         "",
		"Firecracker v0.25.2":        "",
		"QEMU emulator version 9.2":  "",
		"Firecracker v1.8.0 \x1b[2J": "",
		"":                           "",
	} {
		if got, err := firecrackerVersion(line); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	}
}

// scriptedVMM is an API whose VMM sends these bytes to whoever connects.
func scriptedVMM(sent []byte) *api {
	a := &api{}
	a.client.Transport = &http.Transport{MaxResponseHeaderBytes: apiHeader, DisableCompression: true, MaxConnsPerHost: 1,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, its := net.Pipe()
			go func() {
				defer its.Close()
				_ = its.SetDeadline(time.Now().Add(5 * time.Second))
				if req, err := http.ReadRequest(bufio.NewReader(its)); err == nil {
					_, _ = http.MaxBytesReader(nil, req.Body, 1<<20).Read(make([]byte, 1<<10))
				}
				_, _ = its.Write(sent)
			}()
			return ours, nil
		}}
	a.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return a
}

// TestAPIAnswers tells success from everything else.
func TestAPIAnswers(t *testing.T) {
	for sent, want := range map[string]string{
		"HTTP/1.1 204 \r\n\r\n": "",
		"HTTP/1.1 204 No Content\r\nServer: Firecracker API\r\nConnection: keep-alive\r\n\r\n":                               "",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}":                                                                     "",
		"HTTP/1.1 400 \r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n{\"fault_message\":\"no \\u0007 no\"}": "status 400): no",
		"HTTP/1.1 500 \r\nContent-Length: 4\r\n\r\nnone":                                                                     "no reason given",
		"HTTP/1.1 307 \r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n":                                          "status 307",
		"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + strings.Repeat("x", 70_000):                                     "too long",
		"HTTP/1.1 204\r\nX: " + strings.Repeat("x", 70_000) + "\r\n\r\n":                                                     "PUT /x: ",
		"not HTTP\r\n\r\n": "PUT /x: ",
		"":                 "PUT /x: ",
	} {
		a := scriptedVMM([]byte(sent))
		err := a.do(t.Context(), 10*time.Second, apiRequest{http.MethodPut, "/x", action{"y"}})
		a.close()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", sent, err, want)
		}
	}
}

// FuzzAPI reads answers of hostile VMMs.
func FuzzAPI(f *testing.F) {
	f.Add([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 400 \r\nContent-Length: 21\r\n\r\n{\"fault_message\":\"x\"}"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"))
	f.Add(bytes.Repeat([]byte{0xff}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := scriptedVMM(b)
		defer a.close()
		_ = a.do(t.Context(), 5*time.Second, apiRequest{http.MethodPut, "/x", action{"y"}})
		text := faultIn(b)
		if len(text) > 2*hosted.MaxWords || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("the reason is %q", text)
		}
	})
}

// TestCopyFull copies a file without its zero pages.
func TestCopyFull(t *testing.T) {
	const size = 2*copyPiece + 3*pageBytes + 17
	data := make([]byte, size)
	for _, at := range []int{0, 5 * pageBytes, copyPiece - 1, copyPiece, size - 1} {
		data[at] = 'x'
	}
	from := filepath.Join(t.TempDir(), "from")
	if err := os.WriteFile(from, data, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(t.TempDir(), "to"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := copyFull(t.Context(), out, in, size); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(out.Name()); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy is another one: %v", err)
	}
	if use := hosted.FileUse(out.Name()); use > 1<<20 {
		t.Errorf("the copy takes %d bytes of the disk", use)
	}
	if err := copyFull(t.Context(), out, in, size+1); err == nil {
		t.Error("a file that is too short is no error")
	}
}

// TestEngines: a handle names its engine, and one of an older build is QEMU's.
func TestEngines(t *testing.T) {
	for name, want := range map[string]string{"": EngineQEMU, EngineQEMU: EngineQEMU, EngineFirecracker: EngineFirecracker} {
		if e, err := engineOf(name); err != nil || e.name() != want {
			t.Errorf("%q is %v, %v", name, e, err)
		}
	}
	if _, err := engineOf("bochs"); err == nil || !strings.Contains(err.Error(), EngineFirecracker) {
		t.Errorf("an unknown engine: %v", err)
	}
}
