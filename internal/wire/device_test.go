package wire

import (
	"bytes"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// TestManyParts shows that a segment of more pieces than the kernel takes at once is sent whole.
// Such a segment was once refused at each repetition, so the connection stood still.
func TestManyParts(t *testing.T) {
	for _, k := range []kind{socket, tapWithHeader} {
		for _, n := range []int{1, maxParts - 1, maxParts, 3 * maxParts} {
			var data buffer.Buffer
			var want []byte
			for i := range n {
				piece := []byte{byte(i), byte(i >> 8), 7}
				want = append(want, piece...)
				v := buffer.NewViewWithData(piece)
				if err := data.Append(v); err != nil {
					t.Fatal(err)
				}
			}
			pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: data})
			d := &device{kind: k}
			parts := d.parts(pkt)
			got := bytes.Join(parts, nil)
			if k == tapWithHeader {
				got = got[virtioSize:]
			}
			if len(parts) > maxParts || !bytes.Equal(got, want) {
				t.Errorf("%v, %d pieces: %d parts, %d bytes, want %d", k, n, len(parts), len(got), len(want))
			}
			pkt.DecRef()
		}
	}
}
