// Fuzz target: any bytes as a model. It is refused, or it encodes.
#include "../src/encoder.hpp"
#include "../src/utf8.hpp"

using namespace tokpress;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kText = "The  quick\tbrown \xC3\xA9 e\xCC\x81 \xE2\x96\x81 \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x99\x82 <s>\0 \xEF\xAC\x81"
                                   " aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \n";
  try {
    const Encoder encoder(parse_model({reinterpret_cast<const char*>(data), size}), true);
    Worker worker(13);  // a small cache: it is made anew each time
    Output out;
    const auto* text = reinterpret_cast<const uint8_t*>(kText.data());
    for (int again = 0; again < 2; ++again) encoder.encode(text, kText.size(), worker, out);
    Buffer<int64_t> starts;
    encoder.encode(text, kText.size(), worker, out, starts);
    for (size_t i = 0; i < out.size(); ++i) {
      if (out.data()[i] >= encoder.model().pieces.size()) __builtin_trap();
    }
  } catch (const Refused&) {
  }
  return 0;
}
