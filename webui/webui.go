package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed dist
var dist embed.FS

// contentSecurityPolicy lets the page load and call its own origin only.
// "dompurify" is the policy name of its sanitiser.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify"

// assetPath is where hashed files are served. A name stands for its content, so
// they may be kept for ever.
const assetPath = "/ui/assets/"

// licensesPath is where the licences of the page's parts are served.
const licensesPath = "/ui/licenses.md"

// minCompressed is the size in bytes below which gzip does not save a packet.
const minCompressed = 1024

// types are the media types of what the bundler writes. mime's own table depends
// on the machine.
var types = map[string]string{
	".html":  "text/html; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".md":    "text/plain; charset=utf-8",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".woff2": "font/woff2",
}

// file is one embedded file, ready to be sent.
type file struct {
	body       []byte
	gzipped    []byte // nil if it would not help
	media      string
	etag       string // quoted; of the body
	gzippedTag string // quoted; of the gzipped body
}

// load reads all built files by the path they are served under.
var load = sync.OnceValues(func() (map[string]*file, error) {
	files := map[string]*file{}
	err := fs.WalkDir(dist, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := newFile(name)
		if err != nil {
			return err
		}
		files[strings.TrimPrefix(name, "dist")] = f
		return nil
	})
	return files, err
})

func newFile(name string) (*file, error) {
	body, err := dist.ReadFile(name)
	if err != nil {
		return nil, err
	}
	media, ok := types[path.Ext(name)]
	if !ok {
		if media = mime.TypeByExtension(path.Ext(name)); media == "" {
			return nil, fmt.Errorf("webui: no media type for %s", name)
		}
	}
	sum := sha256.Sum256(body)
	tag := hex.EncodeToString(sum[:16])
	f := &file{body: body, media: media, etag: `"` + tag + `"`, gzippedTag: `"` + tag + `-gzip"`}
	if zipped := compress(body); len(body) >= minCompressed && len(zipped) < len(body) {
		f.gzipped = zipped
	}
	return f, nil
}

func compress(body []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = w.Write(body)                                  // a buffer does not fail
	_ = w.Close()
	return b.Bytes()
}

// Handler serves the page: its document at /, /ui and /ui/, its assets under
// /ui/assets/, the licences of its parts at /ui/licenses.md. Everything else is 404, other methods than GET and HEAD are 405.
// Mount it at /ui/ and, for browsers, at /.
//
// It panics if the embedded files are not those of a build; a test holds that.
func Handler() http.Handler {
	files, err := load()
	if err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		switch p := r.URL.Path; {
		case p == "/" || p == "/ui" || p == "/ui/":
			w.Header().Set("Cache-Control", "no-cache")
			serve(w, r, files["/index.html"])
		case p == licensesPath:
			serve(w, r, files["/licenses.md"])
		case strings.HasPrefix(p, assetPath) && files[strings.TrimPrefix(p, "/ui")] != nil:
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
			serve(w, r, files[strings.TrimPrefix(p, "/ui")])
		default:
			http.NotFound(w, r)
		}
	})
}

func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// serve sends a file, compressed if the client takes that, and answers
// conditional and range requests.
func serve(w http.ResponseWriter, r *http.Request, f *file) {
	h := w.Header()
	h.Set("Content-Type", f.media)
	body, tag := f.body, f.etag
	if f.gzipped != nil {
		h.Add("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Get("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			body, tag = f.gzipped, f.gzippedTag
		}
	}
	h.Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// acceptsGzip reads an Accept-Encoding header. Only an explicit gzip counts: a
// client that leaves it to "*" gets the plain bytes.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		q, weighted := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
		return !weighted || strings.Trim(q, "0.") != ""
	}
	return false
}
