"""Host: the words of synthetic prompts: common ones, each a single token in most vocabularies."""

WORDS = tuple(
    """ability accept access action active address adult advice affect age agent air allow almost amount animal answer
    apple area argue army arrive article aspect attack author avoid award balance band bank bar base basic battle
    beach bed begin believe benefit best better beyond big bird blood blue board body book border box brain branch
    break bridge brief bring brother budget build burn bus business buy call camera camp capital car card care carry
    case catch cause cell center central century chain chair chance change charge check child choice choose church
    circle citizen city claim class clean clear climate close coach coast code cold collect college color come
    common company compare complex concept concern conduct connect contain content context control cool copy corner
    correct cost country couple course court cover create credit crew crime cross crowd culture cup current custom
    cut dark data daughter day deal debate decade decide deep degree deliver demand depth describe design desk
    detail develop device difference dinner direct disease display distance doctor dog door double draft draw dream
    drink drive drop dry dust duty early earth easy eat economy edge effect effort egg election else empty end
    energy engine enjoy enter entire equal error escape event evening exact example exchange exist expect expert
    explain express extra eye face fact factor fail fair faith fall family farm fast father favor fear feature feed
    feel field fight figure file fill film final find finger finish fire firm fish fit fix flat flight floor flow
    flower focus follow food foot force foreign forest form forward frame free fresh friend front fruit fuel full
    fund future game garden gas gate general gift girl glass goal gold good grass gray great green ground group grow
    growth guard guess guide habit hair half hall hand happy hard hat head health hear heart heat heavy height help
    high hill history hold hole home hope horse hospital host hotel hour house human ice idea image impact include
    income increase indeed index industry inside iron island issue item join judge jump key kid kind king kitchen
    know lady lake land language large late laugh law lay layer lead leaf learn leave leg length less lesson letter
    level life lift light like line lion list listen live local long look lose loss lot love low lunch machine magic
    mail main major make man manage map mark market master match matter meal mean measure meat media medical meet
    member memory mention message metal method middle might mile milk mind mine minute miss mix model modern moment
    money month moon morning mother motion mountain mouth move movie much music name narrow nation nature near neck
    need network never news night noise normal north note notice number object ocean offer office often oil old open
    option orange order other output outside owner page paint pair paper parent park part party pass past path
    pattern pay peace people perfect period person phone photo phrase piece place plan plane plant plate play player
    point policy pool poor popular port positive post pound power practice present press pretty price print private
    problem process product profit program project proof protect proud provide public pull purpose push quality
    quarter queen question quick quiet race radio rain raise range rate reach read ready real reason record red
    reduce reflect region relate remain remember remove repeat reply report request rest result return review rich
    ride right ring rise river road rock role roof room root round row rule run safe salt same sand save scale scene
    school science score sea search season seat second secret section see seed sell send sense series serve set
    seven shadow shape share sharp ship shirt shop short show side sight sign silver simple single sister site size
    skill skin sky sleep slow small smile snow soft soil solid song sort sound source south space speak special
    speed spend sport spread spring square stage stand star start state station stay steel step stick still stock
    stone stop store storm story straight strange street strong student study stuff style sugar suit summer sun
    supply support sure surface sweet swim system table talk target task taste teach team tell term test text thank
    thing think third thought thread time title today tone tool top total touch tour toward tower town track trade
    train travel tree trip truck true trust truth turn type union unit upper use usual valley value video view
    village visit voice wait walk wall want warm watch water wave way wear weather week weight west wheel white
    whole wide wife wild wind window wing winter wish woman wonder wood word work world write wrong yard year yellow
    yes young zero zone""".split()
)
FILLER = "the"  # one token in any position; fills a text up to its specified length
