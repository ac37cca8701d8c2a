// Runs an optimized model: Run LIBRARY MODEL, where LIBRARY is what `onnxfuse library` prints.
// The package is Microsoft.ML.OnnxRuntime (or Microsoft.ML.OnnxRuntime.Gpu).
using System;
using System.Linq;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

public static class Run
{
    public static void Main(string[] arguments)
    {
        using var options = new SessionOptions();
        options.RegisterCustomOpLibrary(arguments[0]); // once a session
        using var session = new InferenceSession(arguments[1], options);

        var x = new DenseTensor<float>(new[] { 1, 64 });
        for (var i = 0; i < 64; i++)
        {
            x[0, i] = -2 + 4 * i / 63f;
        }
        var input = NamedOnnxValue.CreateFromTensor(session.InputMetadata.Keys.First(), x);
        using var results = session.Run(new[] { input });
        var y = results.First().AsTensor<float>().ToArray();
        Console.WriteLine(string.Join(" ", y.Take(4).Select(value => value.ToString("F5"))));
    }
}
