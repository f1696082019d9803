// Stands in for libFuzzer where there is no clang: changes seeds at random for so many seconds. It knows nothing of coverage.
//
//     TARGET SECONDS SEED_DIRECTORY
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) {
    std::ifstream file(entry.path(), std::ios::binary);
    seeds.emplace_back((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }
  std::mt19937_64 random(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  unsigned long runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    std::string text = seeds[random() % seeds.size()];
    for (uint64_t changes = random() % 8; changes > 0 && !text.empty(); --changes) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, random() % 16); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 64)); break;
        case 3: text[at] ^= static_cast<char>(1u << random() % 8); break;
        default: text.resize(at); break;
      }
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
  std::printf("%lu runs\n", runs);
}
