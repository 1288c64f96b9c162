"""The style of the pages that a bundle has to print: A4, black on white, no script."""

PRINT_STYLE = """\
@page { size: A4; margin: 15mm }
body { font: 10.5pt/1.35 sans-serif; max-width: 180mm; margin: auto; color: #111 }
h1 { font-size: 15pt; margin: 0 0 2mm } h2 { font-size: 11.5pt; margin: 4mm 0 1mm }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: .2mm solid #999; text-align: left; vertical-align: top }
td, th { padding: .6mm 2mm }
code { font-size: 8.5pt; word-break: break-all } ul { margin: 1mm 0; padding-left: 5mm }
"""
