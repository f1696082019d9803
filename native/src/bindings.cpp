// What Python sees: `_native.Tokenizer`. The interpreter's lock is not held while text is encoded.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "tokenizer.hpp"

namespace nb = nanobind;
using namespace tokpress;

namespace {

template <class T>
nb::object as_array(Buffer<T> values) {
  auto* kept = new Buffer<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Buffer<T>*>(p); });
  const size_t shape[1] = {kept->size()};
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), 1, shape, owner));
}

nb::tuple result(Batch batch, bool with_starts) {
  nb::object ids = as_array(std::move(batch.ids)), ends = as_array(std::move(batch.ends));
  if (!with_starts) return nb::make_tuple(ids, ends);
  return nb::make_tuple(ids, ends, as_array(std::move(batch.starts)));
}

using Offsets = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Documents in_buffers(const Offsets& offsets, const Bytes& data) {
  Documents documents;
  if (offsets.shape(0) == 0) throw std::invalid_argument("no offsets: there is one more than documents");
  documents.count = offsets.shape(0) - 1;
  documents.offsets = offsets.data();
  documents.data = data.data();
  int64_t before = 0;
  for (size_t i = 0; i <= documents.count; ++i) {
    if (documents.offsets[i] < before) throw std::invalid_argument("offsets go backwards");
    before = documents.offsets[i];
  }
  if (static_cast<uint64_t>(before) > data.shape(0)) throw std::invalid_argument("offsets lead beyond the data");
  return documents;
}

nb::tuple encode_buffers(const Tokenizer& self, const Offsets& offsets, const Bytes& data, size_t threads, bool with_starts) {
  const Documents documents = in_buffers(offsets, data);
  Batch batch;
  {
    nb::gil_scoped_release unlocked;
    batch = self.encode(documents, threads, with_starts);
  }
  return result(std::move(batch), with_starts);
}

nb::object unsettled(const Tokenizer& self, const Offsets& offsets, const Bytes& data) {
  const Documents documents = in_buffers(offsets, data);
  Buffer<int64_t> found;
  {
    nb::gil_scoped_release unlocked;
    found = self.unsettled(documents);
  }
  return as_array(std::move(found));
}

// A unigram `tokenizer.json`: its pieces and scores, and what it does with text before.
Tokenizer* from_pieces(const std::vector<std::pair<std::string, double>>& pieces, size_t unknown, bool byte_fallback,
                       nb::bytes charsmap, bool words, bool prefix, bool strip_left, bool strip_right,
                       const std::string& joined_spaces, std::vector<std::pair<std::string, uint32_t>> literals) {
  Model model;
  model.byte_fallback = byte_fallback;
  model.charsmap = {static_cast<const char*>(charsmap.data()), charsmap.size()};
  model.json.words = words;
  model.json.prefix = prefix;
  model.json.strip_left = strip_left;
  model.json.strip_right = strip_right;
  if (joined_spaces != "" && joined_spaces != " " && joined_spaces != "\xE2\x96\x81") {
    throw std::invalid_argument("spaces are joined to a space or to U+2581");
  }
  model.json.joined_spaces = joined_spaces.empty() ? JsonSettings::kNot
                             : joined_spaces == " " ? JsonSettings::kSpace
                                                    : JsonSettings::kMeta;
  fill_json(model, pieces, unknown);
  return new Tokenizer(std::move(model), std::move(literals), true);
}

nb::tuple encode_texts(const Tokenizer& self, const nb::list& texts, size_t threads, bool with_starts) {
  std::vector<nb::object> held;  // whatever becomes of the list meanwhile
  for (nb::handle text : texts) held.push_back(nb::borrow(text));
  Documents documents;
  documents.count = held.size();
  for (const nb::object& text : held) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (!data) throw nb::python_error();
    documents.texts.push_back(reinterpret_cast<const uint8_t*>(data));
    documents.sizes.push_back(static_cast<size_t>(size));
  }
  Batch batch;
  {
    nb::gil_scoped_release unlocked;
    batch = self.encode(documents, threads, with_starts);
  }
  return result(std::move(batch), with_starts);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::class_<Tokenizer>(m, "Tokenizer")
      .def(
          "__init__",
          [](Tokenizer* self, nb::bytes model, std::vector<std::pair<std::string, uint32_t>> literals, bool simd) {
            new (self) Tokenizer(parse_model({static_cast<const char*>(model.data()), model.size()}), std::move(literals), simd);
          },
          nb::arg("model"), nb::kw_only(), nb::arg("literals") = std::vector<std::pair<std::string, uint32_t>>(),
          nb::arg("simd") = true)
      .def("encode_buffers", &encode_buffers, nb::arg("offsets"), nb::arg("data"), nb::kw_only(), nb::arg("threads") = 1,
           nb::arg("starts") = false)
      .def_static("from_pieces", &from_pieces, nb::arg("pieces"), nb::kw_only(), nb::arg("unknown"),
                  nb::arg("byte_fallback") = false, nb::arg("charsmap") = nb::bytes("", 0), nb::arg("words") = false,
                  nb::arg("prefix") = true, nb::arg("strip_left") = false, nb::arg("strip_right") = false,
                  nb::arg("joined_spaces") = "", nb::arg("literals") = std::vector<std::pair<std::string, uint32_t>>())
      .def("unsettled", &unsettled, nb::arg("offsets"), nb::arg("data"))
      .def("encode", &encode_texts, nb::arg("texts"), nb::kw_only(), nb::arg("threads") = 1, nb::arg("starts") = false)
      .def_prop_ro("vocab_size", [](const Tokenizer& self) { return self.encoder().model().pieces.size(); })
      .def(
          "piece",
          [](const Tokenizer& self, size_t token) {
            const auto& pieces = self.encoder().model().pieces;
            if (token >= pieces.size()) throw nb::index_error("an id outside the vocabulary");
            return pieces[token].text;
          },
          nb::arg("token"))
      .def_prop_ro("worker_bytes", [](const Tokenizer&) { return Cache().bytes(); });
}
